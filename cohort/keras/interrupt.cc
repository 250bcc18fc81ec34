// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/interrupt.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <vector>

#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"
#include "cohort/base/strings.h"
#include "cohort/keras/fit_options.h"

namespace cohort::keras::internal {

namespace {

using Of = InterruptGuard::Of;

// What the handler reads and writes.
constinit std::atomic<int> g_fits{0};
constinit std::atomic<uint32_t> g_for_fits{0}, g_for_others{0};  // Ctrl-Cs so far
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

std::atomic<uint32_t>& presses(Of of) { return of == Of::kFit ? g_for_fits : g_for_others; }

void on_interrupt(int) {
  const bool fits = g_fits.load(std::memory_order_relaxed) > 0;
  presses(fits ? Of::kFit : Of::kOther).fetch_add(1, std::memory_order_relaxed);
}

constinit cohort::internal::base::Mutex g_mutex;
[[maybe_unused]] const bool guards_kept = cohort::internal::base::keep_free_over_fork(g_mutex);
constinit bool g_installed COHORT_GUARDED_BY(g_mutex) = false;
constinit struct sigaction g_before COHORT_GUARDED_BY(g_mutex) = {};

// Never destroyed: threads may be in predict while the process exits.
std::vector<const InterruptGuard*>& guards() COHORT_REQUIRES(g_mutex) {
  static auto& all = *new std::vector<const InterruptGuard*>;
  return all;
}

void install() COHORT_REQUIRES(g_mutex) {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // SA_RESETHAND: the second Ctrl-C has the default action, which ends the process.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  g_installed = ::sigaction(SIGINT, &action, nullptr) == 0;
}

// Gives SIGINT the handler that the guards of now need.
void settle() COHORT_REQUIRES(g_mutex) {
  struct sigaction now = {};
  ::sigaction(SIGINT, nullptr, &now);
  if (!g_installed) g_before = now;
  const bool wanted = g_before.sa_handler == SIG_DFL
                          ? !guards().empty()
                          // SIG_IGN: nohup, or a shell's background job
                          : g_before.sa_handler != SIG_IGN && g_fits.load() > 0;
  if (!wanted) {
    // Not over what the program has installed meanwhile.
    const bool is_ours = now.sa_handler == on_interrupt || now.sa_handler == SIG_DFL;
    if (g_installed && is_ours) ::sigaction(SIGINT, &g_before, nullptr);
    g_installed = false;
    return;
  }
  const bool has_fired = g_installed && now.sa_handler == SIG_DFL;
  const bool is_answered = std::none_of(guards().begin(), guards().end(),
                                        [](const auto* guard) { return guard->requested(); });
  if (!g_installed || (has_fired && is_answered)) install();
}

}  // namespace

InterruptGuard::InterruptGuard(Of of) : of_(of), before_(presses(of).load()) {
  const cohort::internal::base::MutexLock lock(g_mutex);
  guards().push_back(this);
  if (of_ == Of::kFit) ++g_fits;
  settle();
}

InterruptGuard::~InterruptGuard() {
  const cohort::internal::base::MutexLock lock(g_mutex);
  std::erase(guards(), this);
  if (of_ == Of::kFit) --g_fits;
  settle();
}

bool InterruptGuard::requested() const {
  return presses(of_).load(std::memory_order_relaxed) != before_;
}

void InterruptGuard::check(const char* operation) const {
  if (!requested()) return;
  throw keras::Interrupted(str_cat("[", operation, "] interrupted by Ctrl-C before it was over"));
}

}  // namespace cohort::keras::internal
