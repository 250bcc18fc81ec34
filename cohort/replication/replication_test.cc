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
#include <map>
#include <memory>
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

constexpr uint64_t kBusySeeds = COHORT_UNDER_SANITIZER != 0 ? 5 : 100;

// States of which a snapshot takes far longer than the log's entries are kept otherwise.
TEST(Replication, WhoComesBackIsABackupWhileUpdatesGoOn) {
  if (const uint64_t seed = number_of("COHORT_SIMULATION_SEED", 0); seed != 0) {
    EXPECT_EQ(Simulation<>(seed, /*is_traced=*/true, World::kBusy).run().wrong, "");
    return;
  }
  int64_t updates = 0;
  for (uint64_t seed = 1; seed <= kBusySeeds; ++seed) {
    const Outcome outcome = Simulation<>(seed, false, World::kBusy).run();
    EXPECT_EQ(outcome.wrong, "") << "COHORT_SIMULATION_SEED=" << seed;
    EXPECT_FALSE(outcome.is_lost) << seed;
    EXPECT_GE(outcome.epochs, 5) << seed << ": a death, and who came back, twice";
    updates += outcome.updates;
  }
  EXPECT_GT(updates, static_cast<int64_t>(kBusySeeds) * 300) << "else nothing went on";
}

// A replaced primary that does not answer is let go after less than a backup's patience.
TEST(Replication, UpdatesGoOnBeforeTwoLeasesAreOver) {
  constexpr Time kLease{1'000'000};
  constexpr Time kTick{10'000};
  Membership membership({.lease = kLease, .clock_drift = 0.01});
  const auto options = [&](NodeId id) {
    ReplicaOptions out;
    out.id = id;
    out.membership = 1;
    out.lease = kLease;
    out.heartbeat = kLease / 5;
    out.resend = kLease / 5;
    out.patience = kLease * 2;
    out.grace = kLease / 5;
    return out;
  };
  std::map<NodeId, std::unique_ptr<Replica>> replicas;
  for (const NodeId id : {10, 11}) {
    replicas[id] = std::make_unique<Replica>(options(id), std::make_unique<ListState>());
  }
  Client client({.id = 100, .membership = 1, .resend = kLease / 20});
  Time now = kLease;
  const auto step = [&] {
    now += kTick;
    membership.advance(now);
    for (auto& [id, each] : replicas) each->advance(now);
    client.advance(now);
    for (int round = 0; round < 4; ++round) {
      std::vector<std::pair<NodeId, Outgoing>> sent;
      const auto take = [&](NodeId from, std::vector<Outgoing> all) {
        for (Outgoing& each : all) sent.emplace_back(from, std::move(each));
      };
      take(1, membership.take_messages());
      for (auto& [id, each] : replicas) take(id, each->take_messages());
      take(100, client.take_messages());
      for (const auto& [from, out] : sent) {
        if (out.to == 1) membership.receive(from, out.message, now);
        if (out.to == 100) client.receive(from, out.message, now);
        const auto found = replicas.find(out.to);
        if (found != replicas.end()) found->second->receive(from, out.message, now);
      }
    }
  };
  for (int i = 0; i < 300; ++i) step();
  client.update("1234", now);
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(client.take_results().size(), 1U);
  ASSERT_EQ(membership.configuration().backups.size(), 1U);
  const Time dies = now;
  replicas.erase(membership.configuration().primary);
  client.update("5678", now);
  while (client.open() > 0 && now < dies + kLease * 5) step();
  EXPECT_EQ(client.open(), 0U);
  EXPECT_LT((now - dies).count(), (kLease * 2).count());
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
struct ForgetsTheLogUnderASnapshot : Replica {
  using Replica::Replica;
  Index kept_from() const override { return committed_; }
};
struct WaitsUntilOneIsEven : Replica {
  using Replica::Replica;
  bool waits_for_candidate() const override { return false; }
};
struct TakesUpdatesWithoutRoom : Replica {
  using Replica::Replica;
  bool has_room() const override { return true; }
};
struct ForgetsASlowClock : Membership {
  using Membership::Membership;
  Time patience() const override { return options_.lease; }
};

/// The first seed from `first` on that finds it; 0: none.
template <class ReplicaType, class MembershipType = Membership>
uint64_t found_by(uint64_t first = 1, World world = World::kStorms) {
  using Simulated = Simulation<ReplicaType, MembershipType>;
  const uint64_t most = world == World::kBusy ? 20 : 20'000;
  for (uint64_t seed = first; seed < first + most; ++seed) {
    const std::string wrong = Simulated(seed, false, world).run().wrong;
    if (wrong.empty()) continue;
    EXPECT_EQ(Simulated(seed, false, world).run().wrong, wrong) << "replayed";
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
  EXPECT_GT(found_by<ForgetsTheLogUnderASnapshot>(1, World::kBusy), 0U);
  EXPECT_GT(found_by<WaitsUntilOneIsEven>(1, World::kBusy), 0U);
  EXPECT_GT(found_by<TakesUpdatesWithoutRoom>(1, World::kBusy), 0U);
  // One world in thousands shows these; they begin near one, to save time.
  EXPECT_GT(found_by<TakesABackupThatIsBehind>(48'600), 0U);
  EXPECT_GT(found_by<CountsItsLeaseFromTheAnswer>(3'200), 0U);
}

}  // namespace
}  // namespace cohort::internal::replication
