// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/internal/progress_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "cohort/testing/expect_error.h"

namespace cohort::internal::variables {
namespace {

void wait_until_more(const std::atomic<int>& calls, int than) {
  while (calls <= than) std::this_thread::yield();
}

TEST(ProgressThread, CallsBetweenResumeAndPause) {
  std::atomic<int> calls = 0;
  ProgressThread thread([&] { ++calls; });
  EXPECT_EQ(thread.pause(), nullptr) << "was never resumed";
  for (int round = 0; round < 3; ++round) {
    thread.resume();
    wait_until_more(calls, calls + 2);
    EXPECT_EQ(thread.pause(), nullptr);
    const int before = calls;
    std::this_thread::sleep_for(5 * ProgressThread::kTick);
    EXPECT_EQ(calls, before);
  }
}

TEST(ProgressThread, PauseWaitsForACallThatGoesOn) {
  std::atomic<int> calls = 0;
  std::atomic<bool> is_over = false;
  ProgressThread thread([&] {
    ++calls;
    std::this_thread::sleep_for(20 * ProgressThread::kTick);
    is_over = true;
  });
  thread.resume();
  wait_until_more(calls, 0);
  EXPECT_EQ(thread.pause(), nullptr);
  EXPECT_TRUE(is_over);
}

TEST(ProgressThread, AnErrorIsItsLastCallAndIsHandedOverOnce) {
  std::atomic<int> calls = 0;
  ProgressThread thread([&] {
    if (++calls == 2) throw std::runtime_error("the link is cut");
  });
  thread.resume();
  wait_until_more(calls, 1);
  std::this_thread::sleep_for(5 * ProgressThread::kTick);
  EXPECT_EQ(calls, 2);
  const std::exception_ptr error = thread.pause();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(testing::error_text([&] { std::rethrow_exception(error); }), "the link is cut");
  EXPECT_EQ(thread.pause(), nullptr);
  thread.resume();
  wait_until_more(calls, 2);
}

// fork copies no threads: nobody would answer.
TEST(ProgressThread, AChildOfTheProcessWaitsForNoThread) {
  std::atomic<int> calls = 0;
  const auto thread = base::kept_to_this_process(std::make_unique<ProgressThread>([&] {
    ++calls;
    std::this_thread::sleep_for(5 * ProgressThread::kTick);
  }));
  thread->resume();
  wait_until_more(calls, 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(thread->pause() == nullptr ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(thread->pause(), nullptr);
}

}  // namespace
}  // namespace cohort::internal::variables
