// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/termination.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <thread>

#include "cohort/base/fork_locks.h"
#include "cohort/base/mutex.h"

namespace cohort::internal::base {
namespace {

constexpr std::chrono::seconds kFlushWithin{2};

// What the handler writes.
constinit std::atomic<unsigned> g_terminations{0};
constinit std::atomic<unsigned> g_answered{0};  // how many of them
static_assert(std::atomic<unsigned>::is_always_lock_free);

void on_termination(int) { g_terminations.fetch_add(1, std::memory_order_relaxed); }

constinit Mutex g_watchers_mutex;
[[maybe_unused]] const bool watchers_kept = keep_free_over_fork(g_watchers_mutex);
constinit int g_watchers COHORT_GUARDED_BY(g_watchers_mutex) = 0;
constinit struct sigaction g_action_before COHORT_GUARDED_BY(g_watchers_mutex) = {};

}  // namespace

TerminationSignal::TerminationSignal() : before_(g_terminations.load()) {
  const MutexLock lock(g_watchers_mutex);
  if (g_watchers++ > 0) return;
  struct sigaction action = {};
  action.sa_handler = on_termination;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, &g_action_before);
}

TerminationSignal::~TerminationSignal() {
  {
    const MutexLock lock(g_watchers_mutex);
    if (--g_watchers > 0) return;
    struct sigaction now = {};
    ::sigaction(SIGTERM, nullptr, &now);
    // Not over what the program has installed meanwhile.
    if (now.sa_handler == on_termination) ::sigaction(SIGTERM, &g_action_before, nullptr);
  }
  if (has_come() && g_answered.load() != g_terminations.load()) ::raise(SIGTERM);
}

bool TerminationSignal::has_come() const {
  return g_terminations.load(std::memory_order_relaxed) != before_;
}

void TerminationSignal::answer() const { g_answered.store(g_terminations.load()); }

void exit_now(int code) {
  // All that is open, on a thread of its own: one whose stream somebody holds (who waits for a line
  // of standard input does) is waited for in vain.
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> flushed = done->get_future();
  try {
    std::thread([done] {
      std::cout.flush();
      std::fflush(stdout);
      std::fflush(stderr);
      std::fflush(nullptr);
      done->set_value();
    }).detach();
    flushed.wait_for(kFlushWithin);
  } catch (const std::exception&) {
    std::cout.flush();
    std::fflush(stdout);
  }
  std::_Exit(code);
}

}  // namespace cohort::internal::base
