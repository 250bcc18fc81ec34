// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/wait_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>

#include "cohort/runtime/topology.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal {
namespace {

// About 50 us on current machines: longer than replicas usually differ within a step, shorter
// than what a scheduler would notice.
constexpr int kMostSpins = 2000;

// Shorter than a scheduler's slice, longer than threads on cores of their own need to wake up.
constexpr std::chrono::microseconds kPatience{50};

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The kernel's word is an int of the same size and place.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex(const std::atomic<uint32_t>& word, int operation, uint32_t value) {
  syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

/// False if the time was up.
bool futex_wait_for(const std::atomic<uint32_t>& word, uint32_t value,
                    std::chrono::nanoseconds time) {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec timeout{.tv_sec = time.count() / kSecond, .tv_nsec = time.count() % kSecond};
  const auto result =
      syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, &timeout, nullptr, 0);
  return result == 0 || errno != ETIMEDOUT;
}

}  // namespace

int most_spins(int threads) { return threads <= usable_cpu_time() ? kMostSpins : 0; }

void WaitWord::wait_while(uint32_t old, SpinBudget& budget, ParkingHelper* helper) {
  const int spins = budget.next();
  for (int i = 0; i < spins; ++i) {
    if (load() != old) return budget.met(i);
    relax();
  }
  if (load() != old) return;
  if (helper != nullptr) helper->will_park();
  parked_.fetch_add(1, std::memory_order_seq_cst);
  park_while(old, helper);
  parked_.fetch_sub(1, std::memory_order_relaxed);
  if (helper != nullptr) helper->has_parked();
  budget.parked();
}

void WaitWord::park_while(uint32_t old, ParkingHelper* helper) {
  std::chrono::nanoseconds patience = kPatience;
  while (value_.load(std::memory_order_seq_cst) == old) {
    if (helper == nullptr) {
      futex(value_, FUTEX_WAIT, old);
    } else if (!futex_wait_for(value_, old, patience)) {
      helper->still_waits();
      patience *= 2;
    }
  }
}

void WaitWord::wake_all() {
  if (parked_.load(std::memory_order_seq_cst) > 0) futex(value_, FUTEX_WAKE, INT_MAX);
}

}  // namespace cohort::internal
