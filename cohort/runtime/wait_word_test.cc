// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/wait_word.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cohort/runtime/topology.h"
#include "cohort/testing/deadline.h"

namespace cohort::internal::runtime {
namespace {

using std::chrono::seconds;
using testing::run_with_deadline;

TEST(SpinBudget, ShrinksWhenLookingWasInVain) {
  SpinBudget budget(2000);
  EXPECT_EQ(budget.spins(), 2000);
  budget.parked();
  EXPECT_EQ(budget.spins(), 1000);
  for (int i = 0; i < 20; ++i) budget.parked();
  EXPECT_EQ(budget.spins(), SpinBudget::kFewest);
}

TEST(SpinBudget, GrowsAgainWhenLookingIsRewarded) {
  SpinBudget slowly(2000);
  for (int i = 0; i < 20; ++i) slowly.parked();
  for (int i = 0; i < 100; ++i) slowly.met(0);
  EXPECT_EQ(slowly.spins(), 2000);

  SpinBudget at_once(2000);
  for (int i = 0; i < 20; ++i) at_once.parked();
  at_once.met(700);
  EXPECT_EQ(at_once.spins(), 1400);
}

// What has become free again would never be seen by looking little.
TEST(SpinBudget, LooksLongNowAndThen) {
  SpinBudget budget(2000);
  for (int i = 0; i < 20; ++i) budget.parked();
  unsigned longest = 0;
  for (unsigned i = 0; i < 10 * SpinBudget::kProbe; ++i) longest += budget.next() == 2000;
  EXPECT_EQ(longest, 10U);
}

// Two threads on one core: each second wait parks.
TEST(SpinBudget, StaysSmallWhereHalfOfTheWaitsPark) {
  SpinBudget budget(2000);
  for (int i = 0; i < 50; ++i) {
    budget.parked();
    budget.met(0);
  }
  EXPECT_LT(budget.spins(), 100);
}

TEST(SpinBudget, OfNothingStaysNothing) {
  SpinBudget budget(0);
  for (unsigned i = 0; i < 2 * SpinBudget::kProbe; ++i) {
    EXPECT_EQ(budget.next(), 0);
    budget.met(0);
    budget.parked();
  }
}

TEST(MostSpins, AreNoneWithMoreThreadsThanCores) {
  EXPECT_GT(most_spins(1), 0);
  EXPECT_GT(most_spins(cores_at_once()), 0);
  EXPECT_EQ(most_spins(cores_at_once() + 1), 0);
  EXPECT_EQ(most_spins(1 << 20), 0);
}

TEST(WaitWord, SeesTheChangeBeforeAndDuringTheWait) {
  for (int spins : {0, 2000}) {
    WaitWord word;
    run_with_deadline(seconds(20), [&] {
      SpinBudget budget(spins);
      word.wait_while(1, budget);  // differs already
      std::jthread other([&] {
        word.add(1);
        word.wake_all();
      });
      word.wait_while(0, budget);
    });
    EXPECT_EQ(word.load(), 1U);
    EXPECT_EQ(word.parked(), 0);
  }
}

TEST(WaitWord, ParksWhoeverMayNotLookAndWakesAll) {
  WaitWord word;
  run_with_deadline(seconds(20), [&] {
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 3; ++i) {
      waiters.emplace_back([&] {
        SpinBudget budget(0);
        word.wait_while(0, budget);
      });
    }
    while (word.parked() < 3) std::this_thread::yield();
    word.add(1);
    word.wake_all();
  });
  EXPECT_EQ(word.parked(), 0);
}

// Two threads pass a turn to and fro: a wake-up that is missed once hangs.
TEST(WaitWord, MissesNoWakeUp) {
  for (int spins : {0, 1, 50}) {
    WaitWord word;
    int plain = 0;  // ThreadSanitizer checks that the word orders it
    run_with_deadline(seconds(60), [&] {
      std::vector<std::jthread> players;
      for (uint32_t player : {0U, 1U}) {
        players.emplace_back([&word, &plain, player, spins] {
          SpinBudget budget(spins);
          for (uint32_t turn = player; turn < 4000; turn += 2) {
            // One look for both: by a second one it could be this player's turn.
            for (uint32_t now = word.load(); now != turn; now = word.load())
              word.wait_while(now, budget);
            ++plain;
            word.add(1);
            word.wake_all();
          }
        });
      }
    });
    EXPECT_EQ(plain, 4000);
  }
}

TEST(WaitWord, TellsWhoIsAboutToPark) {
  run_with_deadline(seconds(60), [] {
    WaitWord word;
    SpinBudget budget(0);
    int calls = 0;
    const auto end = [&] {
      ++calls;
      word.add(1);
    };
    word.wait_while(0, budget, end);
    EXPECT_EQ(calls, 1);
    word.wait_while(0, budget, end);  // nothing to wait for
    EXPECT_EQ(calls, 1);
  });
}

}  // namespace
}  // namespace cohort::internal::runtime
