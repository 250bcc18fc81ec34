// SPDX-License-Identifier: Apache-2.0
//
// Replicated servers in simulated worlds, of which each seed makes another one, and the same with
// planted bugs, which have to be found.
//
//   COHORT_SIMULATION_SEED=17 replication_test --gtest_filter='*HoldsInEveryWorld'   // one, traced
//   COHORT_SIMULATION_SEEDS=50000 replication_test                                   // so many
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "cohort/base/sanitizers.h"
#include "cohort/replication/simulator.h"

namespace cohort::internal::replication {
namespace {

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr uint64_t kSeeds = COHORT_UNDER_SANITIZER != 0 ? 300 : 50'000;

struct Sums {
  int64_t updates = 0;
  int64_t reads = 0;
  int64_t epochs = 0;
  int64_t lost = 0;
};

TEST(Replication, HoldsInEveryWorld) {
  if (const uint64_t seed = number_of("COHORT_SIMULATION_SEED", 0); seed != 0) {
    EXPECT_EQ(Simulation<>(seed, /*is_traced=*/true).run().wrong, "");
    return;
  }
  const uint64_t seeds = number_of("COHORT_SIMULATION_SEEDS", kSeeds);
  std::atomic<uint64_t> next = 1;
  std::mutex mutex;
  Sums sums;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      Sums mine;
      for (uint64_t seed = next++; seed <= seeds; seed = next++) {
        const Outcome outcome = Simulation<>(seed).run();
        if (!outcome.wrong.empty()) {
          const std::scoped_lock lock(mutex);
          ADD_FAILURE() << "COHORT_SIMULATION_SEED=" << seed << ": " << outcome.wrong;
        }
        mine.updates += outcome.updates;
        mine.reads += outcome.reads;
        mine.epochs += outcome.epochs;
        mine.lost += outcome.is_lost ? 1 : 0;
      }
      const std::scoped_lock lock(mutex);
      sums.updates += mine.updates;
      sums.reads += mine.reads;
      sums.epochs += mine.epochs;
      sums.lost += mine.lost;
    });
  }
  for (std::thread& each : threads) each.join();
  const auto worlds = static_cast<int64_t>(seeds);
  std::printf("%lld worlds: %lld updates, %lld reads, %lld epochs, all keepers died in %lld\n",
              static_cast<long long>(worlds), static_cast<long long>(sums.updates),
              static_cast<long long>(sums.reads), static_cast<long long>(sums.epochs),
              static_cast<long long>(sums.lost));
  EXPECT_GT(sums.updates, worlds * 15) << "else little was tested";
  EXPECT_GT(sums.reads, worlds * 10);
  EXPECT_GT(sums.epochs, worlds * 4);
  EXPECT_LT(sums.lost, worlds / 10);
}

TEST(Replication, ASeedGivesTheSameWorldAgain) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Outcome first = Simulation<>(seed).run();
    const Outcome again = Simulation<>(seed).run();
    EXPECT_EQ(first.updates, again.updates);
    EXPECT_EQ(first.reads, again.reads);
    EXPECT_EQ(first.epochs, again.epochs);
  }
}

// Planted bugs

struct AcknowledgesBeforeTheBackups : Replica {
  using Replica::Replica;
  Index acknowledged() const override { return log_.last(); }
};
struct PromotesWithoutFencing : Replica {
  using Replica::Replica;
  bool is_fenced(Epoch /*epoch*/) const override { return false; }
};
struct ShowsWhatIsNotAcknowledged : Replica {
  using Replica::Replica;
  Index readable() const override { return is_primary() ? log_.last() : committed_; }
};
struct ReadsBeforeItHasRecovered : Replica {
  using Replica::Replica;
  bool has_recovered() const override { return true; }
};
struct ReadsWithoutALease : Replica {
  using Replica::Replica;
  bool has_lease(Time /*now*/) const override { return true; }
};
struct TakesABackupThatIsBehind : Replica {
  using Replica::Replica;
  Index owed() const override { return committed_; }
};
struct CountsItsLeaseFromTheAnswer : Replica {
  using Replica::Replica;
  Time lease_begin(const HeartbeatAnswer& /*answer*/, Time now) const override { return now; }
};
struct ForgetsWhatItHasDone : Replica {
  using Replica::Replica;
  std::optional<std::string> result_of(const Command& /*command*/) const override {
    return std::nullopt;
  }
};
struct ForgetsOneBackup : Replica {
  using Replica::Replica;
  std::vector<NodeId> required() const override {
    std::vector<NodeId> out = Replica::required();
    if (!out.empty()) out.pop_back();
    return out;
  }
};
struct ForgetsASlowClock : Membership {
  using Membership::Membership;
  Time patience() const override { return options_.lease; }
};

/// The first seed from `first` on that finds it; 0: none.
template <class ReplicaType, class MembershipType = Membership>
uint64_t found_by(uint64_t first = 1) {
  constexpr uint64_t kMost = 20'000;
  for (uint64_t seed = first; seed < first + kMost; ++seed) {
    const std::string wrong = Simulation<ReplicaType, MembershipType>(seed).run().wrong;
    if (wrong.empty()) continue;
    EXPECT_EQ((Simulation<ReplicaType, MembershipType>(seed).run().wrong), wrong) << "replayed";
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), wrong.c_str());
    return seed;
  }
  return 0;
}

TEST(Replication, PlantedBugsAreFound) {
  EXPECT_GT(found_by<AcknowledgesBeforeTheBackups>(), 0U);
  EXPECT_GT(found_by<PromotesWithoutFencing>(), 0U);
  EXPECT_GT(found_by<ShowsWhatIsNotAcknowledged>(), 0U);
  EXPECT_GT(found_by<ReadsBeforeItHasRecovered>(), 0U);
  EXPECT_GT(found_by<ReadsWithoutALease>(), 0U);
  EXPECT_GT(found_by<ForgetsWhatItHasDone>(), 0U);
  EXPECT_GT(found_by<ForgetsOneBackup>(), 0U);
  EXPECT_GT((found_by<Replica, ForgetsASlowClock>()), 0U);
  // One world in thousands shows these; they begin near one, to save time.
  EXPECT_GT(found_by<TakesABackupThatIsBehind>(3'850), 0U);
  EXPECT_GT(found_by<CountsItsLeaseFromTheAnswer>(3'200), 0U);
}

}  // namespace
}  // namespace cohort::internal::replication
