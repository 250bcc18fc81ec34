// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace cohort::internal::collectives {
namespace {

using Kind = SharedBell::Event::Kind;
constexpr std::array<int, 2> kOthers = {1, 2};

std::chrono::steady_clock::time_point far_away() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

// What peers do while a rank sleeps is done here where it looks once more, on its own thread.
TEST(SharedBell, OnlyTheLastOneThatIsMissingRings) {
  const auto bell = std::make_unique<SharedBell>();
  runtime::SpinBudget none(0);
  const uint32_t seen = bell->rings();
  int looks = 0;
  const auto peers_come = [&] {
    ++looks;
    bell->arrive({Kind::kPost, 7}, 1);
    bell->arrive({Kind::kPost, 7}, 1);  // a rank is missing once
    bell->arrive({Kind::kPost, 6}, 2);  // of an exchange before
    bell->arrive({Kind::kSecondPost, 9}, 2);
    bell->arrive({Kind::kFinish, 9}, 2);
    bell->arrive({Kind::kPost, 7}, 3);  // nobody waits for it
    EXPECT_EQ(bell->rings(), seen);
    bell->arrive({Kind::kPost, 8}, 2);  // who shows the next one has shown this one
    EXPECT_EQ(bell->rings(), seen + 1);
    return false;
  };
  const auto nobody = [](int) { return false; };
  bell->wait(seen, none, far_away(), peers_come,
             {.event = SharedBell::Event{Kind::kPost, 7}, .ranks = kOthers, .has_come = nobody});
  EXPECT_EQ(looks, 1);
  // Nobody sleeps any more.
  bell->arrive({Kind::kPost, 7}, 1);
  EXPECT_EQ(bell->rings(), seen + 1);
}

TEST(SharedBell, WhoHasComeBeforeTheSleepIsNotWaitedFor) {
  const auto bell = std::make_unique<SharedBell>();
  runtime::SpinBudget none(0);
  const uint32_t seen = bell->rings();
  int asked = 0;
  // Rank 1 comes between the two looks: before it could see that it is missing.
  const auto has_come = [&](int rank) { return rank == 1 && ++asked > 1; };
  const auto last_comes = [&] {
    bell->arrive({Kind::kCommit, 3}, 2);
    EXPECT_EQ(bell->rings(), seen + 1);
    return false;
  };
  bell->wait(
      seen, none, far_away(), last_comes,
      {.event = SharedBell::Event{Kind::kCommit, 3}, .ranks = kOthers, .has_come = has_come});
  EXPECT_EQ(asked, 2);
  // All have come: it does not sleep, though nobody has rung.
  const auto all = [](int) { return true; };
  bell->wait(bell->rings(), none, far_away(), [] { return false; },
             {.event = SharedBell::Event{Kind::kCommit, 4}, .ranks = kOthers, .has_come = all});
}

TEST(SharedBell, ASleepForAnythingEndsByAnything) {
  const auto bell = std::make_unique<SharedBell>();
  runtime::SpinBudget none(0);
  const uint32_t seen = bell->rings();
  const auto anybody = [&] {
    bell->arrive({Kind::kFinish, 1}, 40);
    EXPECT_EQ(bell->rings(), seen + 1);
    return false;
  };
  bell->wait(seen, none, far_away(), anybody);
  // More ranks than there are bits for.
  const auto many = [&] {
    bell->arrive({Kind::kPost, 1}, 60);
    EXPECT_EQ(bell->rings(), seen + 2);
    return false;
  };
  constexpr std::array<int, 2> kFar = {1, 60};
  const auto nobody = [](int) { return false; };
  bell->wait(seen + 1, none, far_away(), many,
             {.event = SharedBell::Event{Kind::kPost, 1}, .ranks = kFar, .has_come = nobody});
}

// Two ranks that sleep for each other, with nothing but the bells to wake them.
TEST(SharedBell, NoRingIsLost) {
  struct Side {
    SharedBell bell;
    std::atomic<uint64_t> posted;
  };
  const auto sides = std::make_unique<std::array<Side, 2>>();
  constexpr uint64_t kRounds = 20'000;
  const auto play = [&](int rank) {
    Side& mine = (*sides)[static_cast<std::size_t>(rank)];
    Side& theirs = (*sides)[static_cast<std::size_t>(1 - rank)];
    const std::array<int, 1> other = {1 - rank};
    runtime::SpinBudget none(0);
    for (uint64_t round = 1; round <= kRounds; ++round) {
      mine.posted.store(round, std::memory_order_release);
      theirs.bell.arrive({Kind::kPost, round}, rank);
      const auto has_come = [&](int) {
        return theirs.posted.load(std::memory_order_acquire) >= round;
      };
      while (!has_come(0)) {
        const uint32_t seen = mine.bell.rings();
        const auto deadline = far_away();
        mine.bell.wait(
            seen, none, deadline, [] { return false; },
            {.event = SharedBell::Event{Kind::kPost, round}, .ranks = other, .has_come = has_come});
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "round " << round;
      }
    }
  };
  std::jthread other([&] { play(1); });
  play(0);
}

}  // namespace
}  // namespace cohort::internal::collectives
