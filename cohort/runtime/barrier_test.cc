// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/barrier.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/testing/deadline.h"

namespace cohort::internal::runtime {
namespace {

using std::chrono::seconds;
using testing::run_with_deadline;

/// Runs body(i) on n threads at once and joins them.
void on_threads(int n, const std::function<void(int)>& body) {
  run_with_deadline(seconds(60), [&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < n; ++i) threads.emplace_back([&body, i] { body(i); });
  });
}

/// "fine", "peer failed" or "diverged".
std::string outcome_of_arrive(Barrier& barrier, int spins) {
  SpinBudget budget(spins);
  try {
    barrier.arrive(budget);
  } catch (const PeerFailed&) {
    return "peer failed";
  } catch (const MembersDiverged&) {
    return "diverged";
  }
  return "fine";
}

/// Waits until n members are about to arrive. Some may still be on their way into the barrier, so a
/// test that depends on it is repeated.
void await_count(const std::atomic<int>& count, int n) {
  for (int now = count.load(); now != n; now = count.load()) count.wait(now);
}

class BarrierOf : public ::testing::TestWithParam<int> {};  // the number of spins

TEST_P(BarrierOf, LetsNobodyPassBeforeAllHaveCome) {
  constexpr int kMembers = 4;
  constexpr int kGenerations = 400;
  Barrier barrier(kMembers);
  // Plain ints: ThreadSanitizer checks that the barrier orders them.
  std::vector<int> cells(kMembers, -1);
  std::atomic<int> wrong{0};
  on_threads(kMembers, [&](int i) {
    SpinBudget budget(GetParam());
    for (int g = 0; g < kGenerations; ++g) {
      cells[i] = g;
      barrier.arrive(budget);
      for (int cell : cells) wrong += cell != g;
      barrier.arrive(budget);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(BarrierOf, PoisonWakesWaitersAndFailsWhoComesLater) {
  for (int round = 0; round < 200; ++round) {
    Barrier barrier(4);
    std::atomic<int> coming{0};
    std::atomic<int> unwound{0};
    on_threads(4, [&](int i) {
      if (i == 0) {
        if (round % 2 == 0) await_count(coming, 3);  // else at any time
        barrier.poison();
        return;
      }
      ++coming;
      coming.notify_all();
      unwound += outcome_of_arrive(barrier, GetParam()) == "peer failed";
    });
    ASSERT_EQ(unwound, 3);
    EXPECT_TRUE(barrier.poisoned());
    EXPECT_EQ(outcome_of_arrive(barrier, GetParam()), "peer failed");
    EXPECT_THROW(barrier.check(), PeerFailed);
  }
}

TEST_P(BarrierOf, LeavingWhileOthersWaitIsDivergence) {
  for (int round = 0; round < 200; ++round) {
    Barrier barrier(3);
    std::atomic<int> coming{0};
    std::atomic<int> diverged{0};
    on_threads(3, [&](int i) {
      if (i == 0) {
        if (round % 2 == 0) await_count(coming, 2);  // else at any time
        barrier.leave();
        return;
      }
      ++coming;
      coming.notify_all();
      diverged += outcome_of_arrive(barrier, GetParam()) == "diverged";
    });
    ASSERT_EQ(diverged, 2);
  }
}

TEST_P(BarrierOf, ArrivingAfterOneHasLeftIsDivergence) {
  Barrier barrier(2);
  barrier.leave();
  EXPECT_EQ(outcome_of_arrive(barrier, GetParam()), "diverged");
  EXPECT_THROW(barrier.check(), FailedPrecondition);
}

// A member may return while others are still on their way out of the last meeting.
TEST_P(BarrierOf, LeavingAfterTheLastMeetingIsNoDivergence) {
  Barrier barrier(3);
  std::atomic<int> fine{0};
  for (int round = 0; round < 300; ++round) {
    on_threads(3, [&](int) {
      fine += outcome_of_arrive(barrier, GetParam()) == "fine";
      barrier.leave();
    });
    ASSERT_FALSE(barrier.poisoned()) << "round " << round;
    barrier.reset();
  }
  EXPECT_EQ(fine, 900);
}

TEST_P(BarrierOf, AFailureBeforeItselfIsTheReason) {
  Barrier barrier(2);
  barrier.poison();
  barrier.leave();
  EXPECT_EQ(outcome_of_arrive(barrier, GetParam()), "peer failed");
}

TEST_P(BarrierOf, WorksAgainAfterReset) {
  Barrier barrier(2);
  barrier.leave();
  EXPECT_EQ(outcome_of_arrive(barrier, GetParam()), "diverged");
  barrier.reset();
  EXPECT_NO_THROW(barrier.check());
  std::atomic<int> fine{0};
  on_threads(2, [&](int) { fine += outcome_of_arrive(barrier, GetParam()) == "fine"; });
  EXPECT_EQ(fine, 2);
}

INSTANTIATE_TEST_SUITE_P(Spins, BarrierOf, ::testing::Values(0, 2000),
                         [](const auto& spins) { return spins.param == 0 ? "Park" : "Spin"; });

TEST(Barrier, OfOneMeetsItself) {
  Barrier barrier(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outcome_of_arrive(barrier, 0), "fine");
}

// What comes behind a meeting happens on every member or on none: a failure behind it is no reason
// to take it back from one that has not woken yet.
TEST(Barrier, AMeetingThatTookPlaceCounts) {
  for (const int spins : {0, 2000}) {
    for (int round = 0; round < 200; ++round) {
      Barrier barrier(2);
      std::atomic<int> passed{0};
      const auto member = [&](bool fails) {
        SpinBudget budget(spins);
        barrier.arrive(budget);
        ++passed;
        if (fails) barrier.poison();
      };
      std::thread other([&] { member(true); });
      EXPECT_NO_THROW(member(false));
      other.join();
      EXPECT_EQ(passed.load(), 2);
      EXPECT_EQ(outcome_of_arrive(barrier, spins), "peer failed");
    }
  }
}

}  // namespace
}  // namespace cohort::internal::runtime
