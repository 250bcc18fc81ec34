// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/termination.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "cohort/testing/child.h"

namespace cohort::internal::base {
namespace {

using testing::status_of_child;

TEST(TerminationSignals, OneThatNobodyHasAnsweredComesAgain) {
  EXPECT_EQ(status_of_child([] {
              {
                const TerminationSignal outer;
                raise(SIGTERM);
                const TerminationSignal late;
                if (!outer.has_come() || late.has_come()) return 1;
              }
              return 2;
            }),
            -SIGTERM);
}

TEST(TerminationSignals, OneThatWasAnsweredDoesNot) {
  EXPECT_EQ(status_of_child([] {
              {
                const TerminationSignal signal;
                raise(SIGTERM);
                signal.answer();
              }
              { const TerminationSignal next; }
              return 7;
            }),
            7);
}

// While another thread begins and ends some, too.
TEST(TerminationSignals, WorkInAChild) {
  std::atomic<bool> begun{false}, stop{false};
  std::jthread other([&] {
    while (!stop) {
      const TerminationSignal signal;
      begun = true;
    }
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) {
    const int status = status_of_child([] {
      const TerminationSignal signal;
      return signal.has_come() ? 1 : 3;
    });
    ASSERT_EQ(status, 3) << "child " << i;
  }
  stop = true;
}

// Who waits for a line of standard input holds its stream.
TEST(ExitNow, EndsBesideAThreadThatReads) {
  if (!testing::kCanLimitChildren) GTEST_SKIP() << "starts a thread behind fork";
  EXPECT_EQ(status_of_child([]() -> int {
              std::array<int, 2> ends = {};
              if (::pipe(ends.data()) != 0 || ::dup2(ends[0], STDIN_FILENO) < 0) return 1;
              std::thread([] { std::getchar(); }).detach();
              // Held when it cannot be taken.
              while (::ftrylockfile(stdin) == 0) ::funlockfile(stdin);
              exit_now(7);
            }),
            7);
}

}  // namespace
}  // namespace cohort::internal::base
