// SPDX-License-Identifier: Apache-2.0
//
// Chiefs that follow each other in simulated worlds, and the same with planted bugs, which have to
// be found.
#include <gtest/gtest.h>

#include <cstdio>

#include "cohort/base/sanitizers.h"
#include "cohort/replication/chief_simulator.h"

namespace cohort::internal::replication {
namespace {

constexpr uint64_t kChiefSeeds = COHORT_UNDER_SANITIZER != 0 ? 200 : 50'000;
// A bug is found within so many worlds.
constexpr uint64_t kChiefBugSeeds = 2'000;

TEST(Chiefs, CountFunctionsOnceInEveryWorld) {
  int64_t chiefs = 0;
  int64_t taken_over = 0;
  int64_t refused = 0;
  for (uint64_t seed = 1; seed <= kChiefSeeds; ++seed) {
    const ChiefOutcome outcome = ChiefSimulation<>(seed).run();
    EXPECT_EQ(outcome.wrong, "") << "seed " << seed;
    chiefs += outcome.chiefs;
    taken_over += outcome.taken_over;
    refused += outcome.refused;
  }
  const auto worlds = static_cast<int64_t>(kChiefSeeds);
  std::printf("%lld worlds: %lld chiefs, %lld decisions taken over, %lld messages refused\n",
              static_cast<long long>(worlds), static_cast<long long>(chiefs),
              static_cast<long long>(taken_over), static_cast<long long>(refused));
  EXPECT_GT(chiefs, 3 * worlds) << "else little was tested";
  EXPECT_GT(taken_over, worlds / 4);
  EXPECT_GT(refused, worlds / 2);
}

template <class Rules>
uint64_t first_chief_seed_that_finds() {
  for (uint64_t seed = 1; seed <= kChiefBugSeeds; ++seed) {
    if (!ChiefSimulation<Rules>(seed).run().wrong.empty()) return seed;
  }
  return 0;
}

struct TellsAheadOfTheDisk : RightChiefs {
  static constexpr bool kWaitsForDisk = false;
};
TEST(Chiefs, FindsAnEndThatIsToldBeforeItIsDurable) {
  EXPECT_NE(first_chief_seed_that_finds<TellsAheadOfTheDisk>(), 0);
}

struct ServersTakeAll : RightChiefs {
  static constexpr bool kFences = false;
};
TEST(Chiefs, FindsServersWithoutAFence) {
  EXPECT_NE(first_chief_seed_that_finds<ServersTakeAll>(), 0);
}

struct JournalTakesAll : RightChiefs {
  static constexpr bool kSeesOthers = false;
};
TEST(Chiefs, FindsAJournalThatTwoChiefsWrite) {
  EXPECT_NE(first_chief_seed_that_finds<JournalTakesAll>(), 0);
}

}  // namespace
}  // namespace cohort::internal::replication
