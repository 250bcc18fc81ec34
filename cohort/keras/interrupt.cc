// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/interrupt.h"

#include <atomic>
#include <csignal>
#include <mutex>

#include "cohort/base/strings.h"
#include "cohort/keras/fit_options.h"

namespace cohort::internal {

namespace {

std::atomic<bool> g_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

std::atomic<int> g_fits{0};

std::mutex g_mutex;
int g_guards = 0;  // guarded by g_mutex, as the rest
bool g_installed = false;
struct sigaction g_before = {};

void on_interrupt(int) { g_requested.store(true, std::memory_order_relaxed); }

}  // namespace

InterruptGuard::InterruptGuard(Of of) : of_(of) {
  const std::lock_guard lock(g_mutex);
  if (of_ == Of::kFit) g_fits.fetch_add(1, std::memory_order_relaxed);
  if (g_guards++ == 0) g_requested.store(false, std::memory_order_relaxed);
  if (g_installed) return;
  ::sigaction(SIGINT, nullptr, &g_before);
  if (g_before.sa_handler == SIG_IGN) return;  // nohup, or a shell's background job
  if (g_before.sa_handler != SIG_DFL && of_ != Of::kFit) return;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // SA_RESETHAND: the second Ctrl-C has the default action, which ends the process.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  g_installed = ::sigaction(SIGINT, &action, nullptr) == 0;
}

InterruptGuard::~InterruptGuard() {
  const std::lock_guard lock(g_mutex);
  if (of_ == Of::kFit) g_fits.fetch_sub(1, std::memory_order_relaxed);
  if (--g_guards > 0) return;
  if (g_installed) ::sigaction(SIGINT, &g_before, nullptr);
  g_installed = false;
  g_requested.store(false, std::memory_order_relaxed);
}

bool InterruptGuard::requested() { return g_requested.load(std::memory_order_relaxed); }

void throw_if_interrupted(const char* operation) {
  if (!InterruptGuard::requested() || g_fits.load(std::memory_order_relaxed) > 0) return;
  throw keras::Interrupted(
      str_cat("[", operation, "] interrupted by Ctrl-C after a step, before the end of the data"));
}

}  // namespace cohort::internal
