// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/fork_locks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace cohort::internal::base {
namespace {

constinit Mutex g_busy;

// A thread that has the mutex nearly always: no child finds it taken by a thread that it lacks.
TEST(ForkLocks, AChildFindsThemFree) {
  keep_free_over_fork(g_busy);
  std::atomic<bool> holds{false}, stop{false};
  std::jthread holder([&] {
    while (!stop) {
      const MutexLock lock(g_busy);
      holds = true;
      // Not a yield, which on a busy machine gives away whole slices with the mutex held.
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
      while (std::chrono::steady_clock::now() < until && !stop) {
      }
    }
  });
  while (!holds) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const bool free = g_busy.try_lock();
      if (free) g_busy.unlock();
      ::_exit(free ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "child " << i << " found the mutex taken";
  }
  stop = true;
}

}  // namespace
}  // namespace cohort::internal::base
