// SPDX-License-Identifier: Apache-2.0
//
// Effects of closures in simulated worlds, and the same with planted bugs, which have to be found.
//
//   COHORT_SIMULATION_SEED=17 replication_test --gtest_filter='Closures.CountOnce*'   // one,
//   traced
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "cohort/base/sanitizers.h"
#include "cohort/replication/closure_simulator.h"

namespace cohort::internal::replication {
namespace {

constexpr uint64_t kClosureSeeds = COHORT_UNDER_SANITIZER != 0 ? 300 : 50'000;
// A bug is found within so many worlds.
constexpr uint64_t kBugSeeds = 2'000;

TEST(Closures, CountOnceInEveryWorld) {
  const char* const one = std::getenv("COHORT_SIMULATION_SEED");
  if (one != nullptr) {
    const uint64_t seed = std::strtoull(one, nullptr, 10);
    EXPECT_EQ(ClosureSimulation<>(seed, nullptr, /*is_traced=*/true).run().wrong, "");
    return;
  }
  int64_t attempts = 0;
  int64_t applied = 0;
  int64_t refused = 0;
  for (uint64_t seed = 1; seed <= kClosureSeeds; ++seed) {
    const ClosureOutcome outcome = ClosureSimulation<>(seed).run();
    EXPECT_EQ(outcome.wrong, "") << "COHORT_SIMULATION_SEED=" << seed;
    attempts += outcome.attempts;
    applied += outcome.applied;
    refused += outcome.refused;
  }
  const auto worlds = static_cast<int64_t>(kClosureSeeds);
  std::printf("%lld worlds: %lld attempts, %lld effects, %lld refused\n",
              static_cast<long long>(worlds), static_cast<long long>(attempts),
              static_cast<long long>(applied), static_cast<long long>(refused));
  EXPECT_GT(attempts, worlds * 14) << "else little was tested: 12 are run once anyway";
  EXPECT_GT(applied, worlds * 10);
  EXPECT_GT(refused, worlds);
}

template <class Simulation>
uint64_t first_seed_that_finds(typename Simulation::Snapshot snapshot = nullptr) {
  for (uint64_t seed = 1; seed <= kBugSeeds; ++seed) {
    if (!Simulation(seed, snapshot).run().wrong.empty()) return seed;
  }
  return 0;
}

struct AnswersEarly {
  static constexpr bool kWaits = false;
};
TEST(Closures, FindsACommitBeforeAllHavePrepared) {
  using World = ClosureSimulation<ClosureCommits, PreparedEffects<uint64_t>, AnswersEarly>;
  EXPECT_NE(first_seed_that_finds<World>(), 0);
}

TEST(Closures, FindsIdsThatAreForgottenOnFailover) {
  using World = ClosureSimulation<>;
  EXPECT_NE(first_seed_that_finds<World>([](const World::State& before) {
              World::State next = before;
              next.settled.clear();
              next.floor = 1;
              return next;
            }),
            0);
}

TEST(Closures, FindsEffectsThatAreLostOnFailover) {
  using World = ClosureSimulation<>;
  EXPECT_NE(first_seed_that_finds<World>([](const World::State& before) {
              World::State next = before;
              next.open.clear();
              return next;
            }),
            0);
}

struct BelievesTheLost final : ClosureCommits {
  bool is_current(bool /*is_running*/, uint64_t /*current*/, uint64_t /*attempt*/,
                  bool is_decided) const override {
    return !is_decided;
  }
};
TEST(Closures, FindsADecisionForAnAttemptThatWasReplaced) {
  EXPECT_NE(first_seed_that_finds<ClosureSimulation<BelievesTheLost>>(), 0);
}

struct KeepsFormer final : PreparedEffects<uint64_t> {
  bool drops_former() const override { return false; }
};
struct TakesLate final : PreparedEffects<uint64_t> {
  bool is_settled(ClosureId /*closure*/) const override { return false; }
};
TEST(Closures, FindsServersThatSettleTwice) {
  EXPECT_NE((first_seed_that_finds<ClosureSimulation<ClosureCommits, TakesLate>>()), 0);
}

// Attempts of one closure may differ: which effects there are depends on what has been read.
TEST(Closures, AnotherAttemptReplacesTheOneBefore) {
  PreparedEffects<uint64_t> right;
  EXPECT_TRUE(right.prepare(1, 1, 0, 10));
  EXPECT_TRUE(right.prepare(1, 1, 1, 11));
  EXPECT_TRUE(right.prepare(1, 2, 0, 20));
  EXPECT_FALSE(right.prepare(1, 1, 2, 12)) << "late";
  EXPECT_EQ(right.settle({.closure = 1, .attempt = 2, .count = 1}, 1), std::vector<uint64_t>{20});
  EXPECT_TRUE(right.settle({.closure = 1, .attempt = 2, .count = 1}, 2).empty());
  EXPECT_FALSE(right.prepare(1, 3, 0, 30));
  EXPECT_TRUE(right.state().settled.empty()) << "the floor says it";
  KeepsFormer wrong;
  wrong.prepare(1, 1, 1, 11);
  wrong.prepare(1, 2, 0, 20);
  EXPECT_THROW(wrong.settle({.closure = 1, .attempt = 2, .count = 1}, 1), Error);
}

// One that runs for hours costs no memory for all that end meanwhile.
TEST(Closures, SettledOnesAreRememberedAsRanges) {
  PreparedEffects<uint64_t> server;
  for (const ClosureId id : {4, 2, 3, 7, 6, 9}) server.settle({.closure = id}, 1);
  const std::map<ClosureId, ClosureId> expected = {{2, 5}, {6, 8}, {9, 10}};
  EXPECT_EQ(server.state().settled, expected);
  for (ClosureId id = 1; id <= 10; ++id) {
    const bool is_open = id == 1 || id == 5 || id == 8 || id == 10;
    EXPECT_EQ(server.prepare(id, 1, 0, id), is_open) << id;
  }
  EXPECT_EQ(server.settle({.closure = 8, .attempt = 1, .count = 1}, 7), std::vector<uint64_t>{8});
  const std::map<ClosureId, ClosureId> joined = {{6, 10}};
  EXPECT_EQ(server.state().settled, joined);
  EXPECT_FALSE(server.prepare(5, 2, 0, 5)) << "before the floor";
}

TEST(Closures, AThrownOneLeavesNothing) {
  PreparedEffects<uint64_t> server;
  server.prepare(1, 1, 0, 10);
  EXPECT_TRUE(server.settle({.closure = 1}, 1).empty());
  EXPECT_FALSE(server.prepare(1, 1, 1, 11));
  EXPECT_TRUE(server.state().open.empty());
  server.prepare(2, 1, 0, 20);
  server.raise_floor(3);
  EXPECT_TRUE(server.state().open.empty());
  EXPECT_FALSE(server.prepare(2, 1, 1, 21));
}

// Who is told again learns what has come of it, until nobody asks any more.
TEST(Closures, WhatWasMetIsKeptUntilTheFloorPasses) {
  PreparedEffects<uint64_t> server;
  server.prepare(2, 1, 0, 20);
  server.settle({.closure = 2, .attempt = 1, .count = 1}, 1);
  EXPECT_TRUE(server.is_being_applied(2));
  server.note_applied(2, {.code = 5, .text = "the disk is full"});
  EXPECT_FALSE(server.is_being_applied(2));
  EXPECT_TRUE(server.settle({.closure = 2, .attempt = 1, .count = 1}, 1).empty());
  EXPECT_FALSE(server.is_being_applied(2));
  EXPECT_EQ(server.failure_of(2).text, "the disk is full");
  PreparedEffects<uint64_t> next;
  next.restore(server.state());
  EXPECT_EQ(next.failure_of(2).code, 5);
  EXPECT_EQ(next.failure_of(1).code, 0);
  next.raise_floor(3);
  EXPECT_TRUE(next.state().failed.empty());
  EXPECT_EQ(next.failure_of(2).code, 0);
}

TEST(Closures, CommitsAreDecidedOnce) {
  ClosureCommits commits;
  commits.open(1);
  commits.open(2);
  EXPECT_EQ(commits.begin(1), 1);
  EXPECT_FALSE(commits.decide(2, 1)) << "nobody runs it";
  commits.lose(1);
  EXPECT_FALSE(commits.decide(1, 1));
  EXPECT_EQ(commits.begin(1), 2);
  EXPECT_FALSE(commits.decide(1, 1));
  EXPECT_TRUE(commits.decide(1, 2));
  EXPECT_FALSE(commits.decide(1, 2));
  EXPECT_THROW(commits.begin(1), Error);
  EXPECT_EQ(commits.floor(), 1);
  commits.end(1);
  EXPECT_EQ(commits.floor(), 2);
  commits.end(2);
  EXPECT_EQ(commits.floor(), 3);
}

}  // namespace
}  // namespace cohort::internal::replication
