// SPDX-License-Identifier: Apache-2.0
//
// Tables whose ids and rows are on parameter servers, against the same table in one process.
#include "cohort/coordinator/parameters/remote_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/parameters/test_groups.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/parameters/test_tables.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::internal::coordinator {
namespace {

using testing::expect_error;

// With rows enough for all, whatever server they belong to.
TEST(RemoteTable, TrainsToTheRowsOfOneProcess) {
  const DynamicTableOptions options{.admit_after = 2, .steps_to_live = 6, .seed = 4};
  for (const int shards : {1, 2, 3}) {
    for (const Method& method : testing::row_methods()) {
      const TestServers servers(2);
      Trainer here(OneDeviceStrategy("CPU:0"), 90, options, method);
      Trainer there(servers.coordinator(fixed_shards_partitioner(shards)), 90, options, method);
      for (const Ids& batch : some_batches(30, 40, 3)) {
        here.step(batch);
        there.step(batch);
        const Ids a = here.table().ids(), b = there.table().ids();
        ASSERT_EQ(std::set(a.begin(), a.end()), std::set(b.begin(), b.end()));
      }
      EXPECT_EQ(there.all(), here.all()) << method.name << " " << shards;
      for (int s = 0; s < here.updater().slot_count(); ++s) {
        EXPECT_EQ(there.slot(s), here.slot(s)) << method.name << " " << shards;
      }
      EXPECT_GT(here.table().evicted(), 3);
      EXPECT_EQ(there.table().evicted(), here.table().evicted());
      EXPECT_EQ(there.table().candidates(), here.table().candidates());
      EXPECT_EQ(there.table().size(), here.table().size());
      EXPECT_EQ(there.table().refused(), 0);
    }
  }
}

// On one server also where rows are few.
TEST(RemoteTable, EvictsAsInOneProcess) {
  for (const WhenFull how :
       {WhenFull::kRefuse, WhenFull::kLeastRecentlyUsed, WhenFull::kLeastFrequentlyUsed}) {
    const DynamicTableOptions options{
        .admit_after = 2, .candidates = 4, .when_full = how, .seed = 4};
    const TestServers servers(1);
    Trainer here(OneDeviceStrategy("CPU:0"), 5, options, testing::row_methods()[1]);
    Trainer there(servers.coordinator(), 5, options, testing::row_methods()[1]);
    for (const Ids& batch : some_batches(12, 60, 8)) {
      here.step(batch);
      there.step(batch);
      ASSERT_EQ(there.table().ids(), here.table().ids());
    }
    EXPECT_EQ(there.all(), here.all());
    EXPECT_EQ(to_vector<int64_t>(there.table().map().value()),
              to_vector<int64_t>(here.table().map().value()));
  }
}

TEST(RemoteTable, LookupsForEvaluationChangeNothing) {
  const TestServers servers(2);
  Trainer there(servers.coordinator(fixed_shards_partitioner(2)), 8, {.admit_after = 2},
                testing::row_methods()[0]);
  const auto map = [&] { return to_vector<int64_t>(there.table().map().value()); };
  there.step({1, 1, 2});
  const auto before = map();
  EXPECT_EQ(there.row(77), to_vector<float>(there.table().first_row(77)));
  EXPECT_EQ(shape_of(there.table().lookup(zeros({0}, kInt64))), (Shape{0, kWidth}));
  EXPECT_EQ(shape_of(there.table().lookup(zeros({2, 2}, kInt32))), (Shape{2, 2, kWidth}));
  EXPECT_EQ(map(), before);
}

// The row that a worker has looked up is another id's when its gradient comes.
TEST(RemoteTable, AGradientNeverReachesAnotherId) {
  const TestServers servers(1);
  const Strategy chief = servers.coordinator({}, 2);
  const DynamicTableOptions options{.seed = 1};
  Trainer owner(chief, 1, options, testing::row_methods()[0]);
  Trainer one(servers.worker(0), 1, options, testing::row_methods()[0]);
  Trainer two(servers.worker(1), 1, options, testing::row_methods()[0]);
  GradientTape tape;
  const Tensor rows = one.look_up({1});
  EXPECT_EQ(owner.table().ids(), Ids{1});
  two.look_up({9});
  EXPECT_EQ(owner.table().ids(), Ids{9});
  one.apply(tape, rows, {1});
  EXPECT_EQ(owner.row(9), to_vector<float>(owner.table().first_row(9)));
  EXPECT_EQ(owner.row(1), to_vector<float>(owner.table().first_row(1)));
}

// Each id trains in a direction of its own, from zero: whatever else reached its row would show.
TEST(RemoteTable, WorkersAtOnceMixNoRows) {
  const TestServers servers(2);
  constexpr int kWorkers = 3;
  constexpr int kSteps = 150;
  const DynamicTableOptions options{.steps_to_live = 20, .seed = 1, .minval = 0, .maxval = 0};
  const Partitioner two = fixed_shards_partitioner(2);
  Trainer owner(servers.coordinator(two, kWorkers), 8, options, testing::row_methods()[0]);
  const auto work = [&](int worker) {
    const Strategy strategy = servers.worker(worker, kWorkers, two);
    const auto scope = strategy.scope();
    const Variable rows(zeros({8, kWidth}), {.name = "rows"});
    const DynamicTable table(rows, options);
    const auto updater = variables::store_of("[test] ", rows).make_updater({rows}, {.name = "sgd"});
    std::mt19937_64 draw(static_cast<uint64_t>(worker));
    for (int s = 0; s < kSteps; ++s) {
      Ids ids;
      for (int i = 0; i < 4; ++i) ids.push_back(static_cast<int64_t>(draw() % 16) + 1);
      strategy.run([&] {
        const Tensor all = tensor_of(ids);
        table.see(all);
        GradientTape tape;
        const Tensor found = table.lookup(all);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          const Numbers x = to_vector<float>(found[static_cast<int64_t>(i)]);
          EXPECT_EQ(x[1], x[0] * static_cast<float>(ids[i]));
          EXPECT_EQ(x[2], -x[0]);
        }
        const Tensor along = ones({static_cast<int64_t>(ids.size()), kWidth});
        along.select(1, 1).copy_(all);
        along.select(1, 2).fill_(-1);
        updater->apply(tape.gradient(-(found * along).sum(), std::span(&rows, 1)),
                       update_rules::SgdStep{.learning_rate = 1});
      });
    }
  };
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) threads.emplace_back(work, w);
  for (std::thread& each : threads) each.join();
  EXPECT_GT(owner.table().evicted(), 50);
  EXPECT_LE(owner.table().size(), 8);
  for (const auto& [id, x] : owner.all()) EXPECT_EQ(x[1], x[0] * static_cast<float>(id));
}

// Rows lie by the ids' hashes there, and by their numbers in files.
TEST(RemoteTable, FilesGoIntoAnyNumberOfServers) {
  const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / "table";
  const DynamicTableOptions options{.admit_after = 2, .steps_to_live = 9, .seed = 4};
  const std::vector<Ids> batches = some_batches(30, 60, 5);
  for (const Method& method : {testing::row_methods()[1], testing::row_methods()[3]}) {
    const auto trainer = [&](const Strategy& strategy) {
      return std::make_unique<Trainer>(strategy, 90, options, method);
    };
    const TestServers two(2), three(3);
    Trainer whole(OneDeviceStrategy("CPU:0"), 90, options, method);
    std::vector<std::unique_ptr<Trainer>> others;
    others.push_back(trainer(OneDeviceStrategy("CPU:0")));
    others.push_back(trainer(two.coordinator(fixed_shards_partitioner(2))));
    others.push_back(trainer(three.coordinator(fixed_shards_partitioner(5))));
    others.push_back(trainer(OneDeviceStrategy("CPU:0")));
    std::size_t next = 0;
    for (; next < 10; ++next) {
      whole.step(batches[next]);
      others.front()->step(batches[next]);
    }
    for (std::size_t i = 1; i < others.size(); ++i) {
      Trainer &from = *others[i - 1], &to = *others[i];
      from.save(path);
      to.step({1, 1, 2, 2, 3, 3, 4, 4});  // what it has is replaced
      // Slots come behind the ids, or before them.
      const auto copy_slots = [&] {
        for (int s = 0; s < to.updater().slot_count(); ++s) {
          to.updater().set_slot(0, s, from.updater().slot(0, s));
        }
      };
      if (i % 2 == 0) copy_slots();
      to.restore(path);
      if (i % 2 == 1) copy_slots();
      ASSERT_EQ(to.all(), from.all()) << i;
      ASSERT_EQ(to.table().candidates(), from.table().candidates());
      ASSERT_EQ(to.table().evicted(), from.table().evicted());
      for (int s = 0; s < to.updater().slot_count(); ++s) ASSERT_EQ(to.slot(s), from.slot(s)) << i;
      for (const std::size_t end = next + 10; next < end; ++next) {
        whole.step(batches[next]);
        to.step(batches[next]);
        if (method.lazy) continue;  // its rule counts steps, of which `to` has made others
        ASSERT_EQ(to.all(), whole.all()) << i << " " << next;
      }
    }
    EXPECT_GT(whole.table().evicted(), 5);
  }
}

// A server has fewer rows than ids that belong to it.
TEST(RemoteTable, AFullFileKeepsWhatWasSeenLast) {
  const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / "table";
  const DynamicTableOptions options{.seed = 4};
  constexpr int64_t kRows = 12;
  Trainer full(OneDeviceStrategy("CPU:0"), kRows, options, testing::row_methods()[0]);
  for (int64_t id = 0; id < kRows; ++id) full.step({id});
  full.save(path);
  const TestServers servers(3);
  Trainer there(servers.coordinator(fixed_shards_partitioner(3)), kRows, options,
                testing::row_methods()[0]);
  there.restore(path);
  EXPECT_EQ(there.table().size() + there.table().evicted(), kRows);
  const auto rows = full.all();
  for (const auto& [id, row] : there.all()) EXPECT_EQ(row, rows.at(id));
  for (const auto& [id, row] : rows) {
    const auto known = there.table().ids();
    if (std::count(known.begin(), known.end(), id) > 0) continue;
    EXPECT_EQ(there.row(id), to_vector<float>(there.table().first_row(id)));
  }
  const TestServers others(1);
  Trainer small(others.coordinator(), 4, options, testing::row_methods()[0]);
  EXPECT_THROW(small.table().map().assign(full.table().map().value()), InvalidArgument);
}

// Of ids that are counted a server may get more than it counts: the last ones stay.
TEST(RemoteTable, AFileOfManyCandidatesGoesIntoServersThatCountFewer) {
  const cohort::testing::TemporaryFolder folder;
  const std::string path = folder / "table";
  const DynamicTableOptions options{.admit_after = 2, .seed = 4};
  constexpr int64_t kRows = 40;
  Trainer full(OneDeviceStrategy("CPU:0"), kRows, options, testing::row_methods()[0]);
  for (int64_t id = 0; id < kRows; ++id) full.step({id + 1000});
  ASSERT_EQ(full.table().candidates(), kRows);
  full.save(path);
  const TestServers servers(3);
  Trainer there(servers.coordinator(fixed_shards_partitioner(3)), kRows, options,
                testing::row_methods()[0]);
  there.restore(path);
  EXPECT_GT(there.table().candidates(), kRows / 2);
  EXPECT_LT(there.table().candidates(), kRows) << "ids of a shard never come out even by chance";
}

// A group's primary dies, its backup goes on, and then the first one again: all that it has it got
// by the snapshot.
TEST(RemoteTable, SurvivesItsServers) {
  const DynamicTableOptions options{.admit_after = 2, .steps_to_live = 9, .seed = 4};
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  TestGroups groups(store.address(), 1, std::chrono::milliseconds(1000));
  const auto servers = groups.connect();
  servers->begin(1);
  const Strategy strategy = make_parameter_server_strategy(
      {.servers = servers, .partitioner = fixed_shards_partitioner(2)});
  Trainer here(OneDeviceStrategy("CPU:0"), 90, options, testing::row_methods()[1]);
  Trainer there(strategy, 90, options, testing::row_methods()[1]);
  const std::vector<Ids> batches = some_batches(30, 40, 6);
  const auto train = [&](std::size_t first) {
    for (std::size_t i = first; i < first + 10; ++i) {
      here.step(batches[i]);
      there.step(batches[i]);
    }
    ASSERT_EQ(there.all(), here.all()) << first;
  };
  train(0);
  groups.stop(0);
  train(10);
  groups.start(0);
  ASSERT_TRUE(testing::comes_true([&] { return groups.is_whole(); }));
  train(20);
  groups.stop(1);
  train(30);
  EXPECT_EQ(there.table().evicted(), here.table().evicted());
  EXPECT_EQ(there.table().candidates(), here.table().candidates());
  EXPECT_EQ(there.slot(0), here.slot(0));
}

void train_ids(const Variable& rows, const Ids& ids) {
  const DynamicTable table(rows, {.admit_after = 2, .seed = 4});
  const auto updater = variables::store_of("[test] ", rows)
                           .make_updater({rows}, {.name = "adagrad", .slot_initial = {0.1}});
  const Tensor all = tensor_of(ids);
  table.see(all);
  GradientTape tape;
  const Tensor found = table.lookup(all);
  const Tensor pull = (all.to(kFloat32).sin().unsqueeze(1) - found).square().sum();
  updater->apply(tape.gradient(pull, std::span(&rows, 1)),
                 update_rules::AdagradStep{.learning_rate = 0.5});
}
COHORT_REGISTER_FUNCTION(train_ids);

// A program of a chief, a worker and servers, as of others.
TEST(RemoteTable, TrainsByScheduledFunctions) {
  const testing::TestCluster cluster(1, 2);
  const ParameterServerStrategy strategy(
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec()),
       .variable_partitioner = fixed_shards_partitioner(2)});
  ClusterCoordinator coordinator(strategy);
  const auto run = [&](const Variable& rows, const auto& step) {
    for (const Ids& batch : some_batches(20, 30, 7)) step(rows, batch);
  };
  Trainer here(OneDeviceStrategy("CPU:0"), 60, {.admit_after = 2, .seed = 4},
               testing::row_methods()[1]);
  run(here.rows(), [&](const Variable&, const Ids& ids) { here.step(ids); });
  const auto scope = strategy.scope();
  const Variable there(zeros({60, kWidth}), {.name = "rows"});
  run(there,
      [&](const Variable& rows, const Ids& ids) { coordinator.schedule(train_ids, rows, ids); });
  coordinator.join();
  const DynamicTable table(there, {.admit_after = 2, .seed = 4});
  EXPECT_EQ(table.size(), here.table().size());
  for (const auto& [id, row] : here.all()) {
    EXPECT_EQ(to_vector<float>(table.lookup(tensor_of({id}))), row);
  }
  expect_error<Unimplemented>({"schedule_exactly_once", "schedule()"}, [&] {
    coordinator.schedule_exactly_once(train_ids, there, Ids{1});
    coordinator.join();
  });
}

}  // namespace
}  // namespace cohort::internal::coordinator
