// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/spin_advisor.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/topology.h"

// LLVM's libomp; absent from other runtimes. Units: milliseconds that a thread spins after a
// region.
extern "C" void kmp_set_blocktime(int) __attribute__((weak));

namespace cohort::internal::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpinMilliseconds = 1;  // the least that libomp knows but for none
constexpr std::chrono::milliseconds kEvery{5};

thread_local int t_blocktime = -1;  // as last set on this thread

bool can_tell() {
  static const bool can =
      kmp_set_blocktime != nullptr && std::strcmp(openmp_runtime(), "llvm") == 0 &&
      std::getenv("KMP_BLOCKTIME") == nullptr && std::getenv("OMP_WAIT_POLICY") == nullptr;
  return can;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// One advisor for the process: preemptions are counted over all its threads.
bool process_may_spin() {
  static std::atomic<Clock::rep> next{0};
  static std::atomic<bool> may_spin{true};
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (now < next.load(std::memory_order_relaxed)) return may_spin.load(std::memory_order_relaxed);
  static constinit base::Mutex mutex;
  static constinit SpinAdvisor advisor COHORT_GUARDED_BY(mutex);
  [[maybe_unused]] static const bool kept = base::keep_free_over_fork(mutex);
  if (mutex.try_lock()) {  // else another thread looks at this moment
    next.store(now + Clock::duration(kEvery).count(), std::memory_order_relaxed);
    may_spin.store(advisor.update(core_use()), std::memory_order_relaxed);
    mutex.unlock();
  }
  return may_spin.load(std::memory_order_relaxed);
}

}  // namespace

bool SpinAdvisor::update(const CoreUse& total) {
  const double cpu = total.cpu_seconds - seen_.cpu_seconds;
  if (cpu < kWindow) return may_spin_;
  const double rate = static_cast<double>(total.preemptions - seen_.preemptions) / cpu;
  seen_ = total;
  if (may_spin_) {
    ++spinning_;
    if (rate < kShared) return true;
    // Too soon again: the cores were lent for a moment only.
    wanted_ = spinning_ <= 2 * wanted_ ? std::min(2 * wanted_, kMostCalm) : kFewestCalm;
    may_spin_ = false;
    calm_ = 0;
    return false;
  }
  calm_ = rate <= kCalm ? calm_ + 1 : 0;
  if (calm_ >= wanted_) {
    may_spin_ = true;
    spinning_ = 0;
  }
  return may_spin_;
}

CoreUse core_use() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_nivcsw};
}

void update_waiting() {
  if (!can_tell()) return;
  // Under a quota every look is taken from the work.
  static const bool throttled = usable_cpu_time() < usable_cores();
  const int wanted = !throttled && process_may_spin() ? kSpinMilliseconds : 0;
  if (wanted == t_blocktime) return;
  kmp_set_blocktime(wanted);
  t_blocktime = wanted;
}

bool threads_spin() { return t_blocktime != 0; }

}  // namespace cohort::internal::runtime
