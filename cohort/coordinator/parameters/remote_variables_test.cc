// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/remote_variables.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <sstream>
#include <utility>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/embedding_sparse.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/checkpoint/checkpoint.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/sharded_variable.h"
#include "cohort/coordinator/status/task_report.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"
#include "cohort/variables/updater.h"

namespace cohort::internal::coordinator {
namespace {

using Numbers = std::vector<float>;

Numbers numbers(const Tensor& t) { return to_vector<float>(t); }
std::vector<int> tasks(const Variable& v) {
  std::vector<int> out;
  for (const Variable& part : v.components()) out.push_back(part.device().task());
  return out;
}

TEST(RemoteVariables, P06_GoToTheServersInTurn) {
  const TestServers test(3);
  const Strategy strategy = test.coordinator();
  const auto scope = strategy.scope();
  std::vector<Variable> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(1.0);
  EXPECT_EQ(all[0].device(), Device("/job:ps/replica:0/task:0/device:CPU:0"));
  EXPECT_EQ(all[1].device().task(), 1);
  EXPECT_EQ(all[2].device().task(), 2);
  EXPECT_EQ(all[3].device().task(), 0);
  {
    const auto beside = strategy.extended().colocate_vars_with(all[2]);
    EXPECT_EQ(Variable(2.0).device().task(), 2);
  }
  EXPECT_EQ(Variable(2.0).device().task(), 1) << "what was colocated does not count";
  EXPECT_TRUE(strategy.extended().variable_created_in_scope(all[0]));
}

TEST(RemoteVariables, S02_ShardsTakeServersOneAfterTheOther) {
  const TestServers test(2);
  const Strategy strategy = test.coordinator(fixed_shards_partitioner(4));
  const auto scope = strategy.scope();
  const Variable v(arange(10).to(kFloat32), {.name = "v"});
  const std::vector<Variable> parts = v.components();
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(numbers(parts[0]), (Numbers{0, 1, 2}));
  EXPECT_EQ(numbers(parts[1]), (Numbers{3, 4, 5}));
  EXPECT_EQ(numbers(parts[2]), (Numbers{6, 7}));
  EXPECT_EQ(numbers(parts[3]), (Numbers{8, 9}));
  EXPECT_EQ(tasks(v), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(parts[1].name(), "v/part_1");
  EXPECT_EQ(parts[1], v.components()[1]);
  EXPECT_EQ(strategy.extended().value_container(parts[1]), v);
  EXPECT_EQ(numbers(ShardedVariable(v)[{{2, 7, 2}}]), (Numbers{2, 4, 6}));
  parts[1].assign(0.0);
  EXPECT_EQ(numbers(v), (Numbers{0, 1, 2, 0, 0, 0, 6, 7, 8, 9}));
  EXPECT_EQ(Variable(3.0).components().size(), 1U) << "a number is never cut";
}

// Of the rows that an index names those and no others travel.
TEST(RemoteVariables, OnlyRowsThatAreNamedAreRead) {
  const TestServers test(3);
  const Strategy strategy = test.coordinator(fixed_shards_partitioner(3));
  const auto scope = strategy.scope();
  const ShardedVariable v{Variable(arange(60).to(kFloat32).reshape({30, 2}), {.name = "v"})};
  const auto read_by = [&](const std::function<void()>& body) {
    const uint64_t before = row_counts().read;
    body();
    return row_counts().read - before;
  };
  EXPECT_EQ(read_by([&] { EXPECT_EQ(numbers(v[{11, 1}]), (Numbers{23})); }), 1U);
  EXPECT_EQ(read_by([&] { v[{{8, 13}}]; }), 5U);
  EXPECT_EQ(read_by([&] { embedding_lookup(v, tensor({29, 2, 29, 29}, kInt64)); }), 2U);
}

TEST(RemoteVariables, AFunctionMakesEachShard) {
  const TestServers test(2);
  const Strategy strategy = test.coordinator(fixed_shards_partitioner(2));
  const auto scope = strategy.scope();
  const auto first_row = [](const Shape& shape, DType dtype, const PartitionInfo& of) {
    EXPECT_EQ(of.shape, (Shape{5, 2}));
    return full(shape, static_cast<double>(of.offset[0]), dtype);
  };
  const Variable v(first_row, {.shape = Shape{5, 2}, .dtype = kFloat32});
  EXPECT_EQ(numbers(v), (Numbers{0, 0, 0, 0, 0, 0, 3, 3, 3, 3}));
}

TEST(RemoteVariables, ReadWhatOthersWrite) {
  const TestServers test(2);
  const Strategy coordinator = test.coordinator();
  const Strategy worker = test.worker(0);
  const auto make = [](const Strategy& strategy, double value) {
    const auto scope = strategy.scope();
    return Variable(full({2, 2}, value), {.name = "w"});
  };
  const Variable here = make(coordinator, 1);
  const Variable there = make(worker, 5);
  EXPECT_EQ(numbers(there), Numbers(4, 1)) << "the first one made it";
  there.assign_add(ones({2, 2}));
  EXPECT_EQ(numbers(here), Numbers(4, 2));
  EXPECT_EQ(numbers(here.assign(7.0)), Numbers(4, 7));
  EXPECT_EQ(numbers(bind_variable(worker, "w")), Numbers(4, 7));
  std::ostringstream text;
  here.assign(9.0);
  text << there;
  EXPECT_NE(text.str().find("9. 9."), std::string::npos) << text.str();
  testing::expect_error<InvalidArgument>({"\"w\"", "parameter servers"},
                                         [&] { static_cast<void>(there.local_tensor()); });
}

TEST(RemoteVariables, EndWithTheCoordinatorsHandles) {
  const TestServers test(1);
  const Strategy strategy = test.coordinator();
  const auto scope = strategy.scope();
  for (int i = 0; i < 20; ++i) {
    const Variable w(full({8}, i), {.name = "w"});
    const Variable twin(zeros({8}), {.name = "w"});
    EXPECT_EQ(w.name(), "w");
    EXPECT_EQ(twin.name(), "w_1");
    EXPECT_EQ(numbers(w), Numbers(8, static_cast<float>(i)));
  }
  const Variable last(1.0);
  EXPECT_EQ(test.services[0]->bytes(), sizeof(float));
}

TEST(RemoteVariables, V26_CachedReads) {
  const TestServers test(1);
  const Strategy strategy = test.coordinator();
  const auto scope = strategy.scope();
  const Variable v(1.0);
  {
    const auto cache = strategy.extended().cache_variable_reads();
    EXPECT_EQ(numbers(v), (Numbers{1}));
    v.assign(5.0);
    EXPECT_EQ(numbers(v), (Numbers{1}));
    testing::expect_error<InvalidArgument>(
        {"nested"}, [&] { const auto again = strategy.extended().cache_variable_reads(); });
  }
  EXPECT_EQ(numbers(v), (Numbers{5}));
  {
    const auto cache = strategy.extended().cache_variable_reads();
    EXPECT_EQ(numbers(v), (Numbers{5}));
  }
  EXPECT_THROW(OneDeviceStrategy("CPU:0").extended().cache_variable_reads(), InvalidArgument);
}

TEST(RemoteVariables, EachWorkerHasItsCopy) {
  const TestServers test(2);
  const VariableOptions options{.name = "seen", .trainable = false, .per_worker = true};
  const auto make = [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    return Variable(0.0, options);
  };
  const Strategy coordinator = test.coordinator({}, 2);
  const Strategy one = test.worker(0);
  const Strategy two = test.worker(1);
  const Variable all = make(coordinator);
  make(one).assign_add(3.0);
  make(two).assign_add(4.0);
  EXPECT_EQ(numbers(make(two)), (Numbers{4}));
  const std::vector<Tensor> values = all.read_all();
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(numbers(values[0]), (Numbers{3}));
  EXPECT_EQ(numbers(values[1]), (Numbers{4}));
  testing::expect_error<FailedPrecondition>({"\"seen\"", "read_all"},
                                            [&] { static_cast<void>(all.value()); });
}

TEST(RemoteVariables, AGradientBelongsToTheValueThatWasRead) {
  const TestServers test(1);
  const Strategy strategy = test.coordinator();
  const Strategy other = test.worker(0);
  const auto scope = strategy.scope();
  const Variable w(2.0, {.name = "w"});
  GradientTape tape;
  Tensor loss = w.value() * 3.0;
  bind_variable(other, "w").assign(100.0);
  loss = loss * w.value();  // 3 w^2 at 2, where the pass began
  const Tensor gradient = tape.gradient(loss, w);
  EXPECT_EQ(numbers(gradient), (Numbers{12}));
  loss = Tensor();
  EXPECT_EQ(numbers(w), (Numbers{100}));
}

// A program that keeps a loss must not read old weights for ever.
TEST(RemoteVariables, AKeptLossDoesNotHoldTheWeights) {
  const TestServers test(1);
  const Strategy strategy = test.coordinator();
  const Strategy other = test.worker(0);
  const auto scope = strategy.scope();
  const Variable w(2.0, {.name = "w"});
  std::vector<Tensor> kept;
  for (const double next : {5.0, 6.0}) {
    const PerReplica<Tensor> loss = strategy.run([&] { return w.value() * w.value(); });
    kept.push_back(loss[0]);
    bind_variable(other, "w").assign(next);
  }
  EXPECT_EQ(numbers(kept[0]), (Numbers{4}));
  EXPECT_EQ(numbers(kept[1]), (Numbers{25}));
}

struct Step {
  update_rules::Rule rule;
  std::vector<double> slots;
};
std::vector<Step> all_steps() {
  namespace r = update_rules;
  double product = 1;
  return {{r::SgdStep{0.1}, {}},
          {r::MomentumStep{0.1, 0.9, true}, {0}},
          {r::adam_step({.learning_rate = 0.1, .amsgrad = true}, 1), {0, 0, 0}},
          {r::RmspropStep{.learning_rate = 0.1, .momentum = 0.5, .centered = true}, {0, 0, 0}},
          {r::AdagradStep{0.1}, {0.1}},
          {r::AdadeltaStep{0.1}, {0, 0}},
          {r::adamax_step({.learning_rate = 0.1}, 1), {0, 0}},
          {r::nadam_step({.learning_rate = 0.1}, 1, product), {0, 0}},
          {r::FtrlStep{.learning_rate = 0.1, .l1 = 0.01}, {0.1, 0}},
          {r::LionStep{0.1}, {0}}};
}

// What every rule makes of dense and sparse gradients, in this process and on servers.
struct Trained {
  std::vector<Numbers> values, slots;
};
Trained train(const Strategy& strategy, const Step& step, variables::UpdaterOptions options,
              DType dtype = kFloat32) {
  const auto scope = strategy.scope();
  const Tensor numbers_of = (arange(50).to(kFloat32) * 0.37).sin().to(dtype);
  const Variable dense(numbers_of.reshape({25, 2}), {.name = "dense"});
  const Variable table(numbers_of.reshape({10, 5}), {.name = "table"});
  options.slot_initial = step.slots;
  const std::vector<Variable> variables = {dense, table};
  const auto updater = strategy.extended().parameter_store()->make_updater(variables, options);
  for (int i = 1; i <= 3; ++i) {
    const Tensor g = (arange(50).to(kFloat32) * i).cos().reshape({25, 2}).to(dtype);
    const Tensor values = (arange(20).to(kFloat32) + i).reshape({4, 5}) * 0.1;
    const IndexedSlices rows{.values = values.to(dtype),
                             .indices = tensor({7, 2, 7, 9}, kInt64),
                             .dense_shape = {10, 5}};
    updater->apply({{g, dense}, {rows, table}}, step.rule, 0.01);
  }
  Trained out;
  for (std::size_t v = 0; v < variables.size(); ++v) {
    out.values.push_back(numbers(variables[v].value().to(kFloat32)));
    for (int s = 0; s < updater->slot_count(); ++s)
      out.slots.push_back(numbers(updater->slot(v, s).to(kFloat32)));
  }
  return out;
}

TEST(RemoteVariables, UpdateAsVariablesOfOneProcess) {
  const TestServers test(2);
  const std::vector<variables::UpdaterOptions> ways = {{},
                                                       {.lazy_rows = true},
                                                       {.decays = {true, false}},
                                                       {.clipvalue = 0.3},
                                                       {.clipnorm = 0.7, .lazy_rows = true}};
  for (const Step& step : all_steps()) {
    for (const variables::UpdaterOptions& options : ways) {
      const Trained here = train(OneDeviceStrategy("CPU:0"), step, options);
      for (const int shards : {1, 3}) {
        const Strategy strategy = test.coordinator(fixed_shards_partitioner(shards));
        const Trained there = train(strategy, step, options);
        EXPECT_EQ(there.values, here.values) << step.rule.index() << " in " << shards;
        EXPECT_EQ(there.slots, here.slots) << step.rule.index() << " in " << shards;
      }
    }
  }
}

TEST(RemoteVariables, OfNarrowDTypesUpdateAsVariablesOfOneProcess) {
  const TestServers test(2);
  for (const DType dtype : {kFloat16, kBFloat16}) {
    for (const Step& step : all_steps()) {
      for (const variables::UpdaterOptions& options :
           {variables::UpdaterOptions{}, {.clipnorm = 0.7, .lazy_rows = true}}) {
        const Trained here = train(OneDeviceStrategy("CPU:0"), step, options, dtype);
        const Strategy strategy = test.coordinator(fixed_shards_partitioner(3));
        const Trained there = train(strategy, step, options, dtype);
        EXPECT_EQ(there.values, here.values) << step.rule.index() << " " << dtype_name(dtype);
        EXPECT_EQ(there.slots, here.slots) << step.rule.index() << " " << dtype_name(dtype);
      }
    }
  }
}

TEST(RemoteVariables, ClipByTheGlobalNorm) {
  const TestServers test(2);
  const Step step = all_steps()[0];
  const Trained here = train(OneDeviceStrategy("CPU:0"), step, {.global_clipnorm = 0.5});
  const Trained there =
      train(test.coordinator(fixed_shards_partitioner(3)), step, {.global_clipnorm = 0.5});
  for (std::size_t v = 0; v < here.values.size(); ++v) {
    for (std::size_t i = 0; i < here.values[v].size(); ++i) {
      EXPECT_NEAR(there.values[v][i], here.values[v][i], 1e-6);
    }
  }
}

TEST(RemoteVariables, AreLookedUpBySparseIdsAsThoseOfOneProcess) {
  const TestServers test(2);
  const auto looked_up = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable table((arange(20).to(kFloat32) * 0.37).sin().reshape({10, 2}));
    const SparseIds ids{.indices = tensor({0, 0, 0, 1, 2, 0}, kInt64).reshape({3, 2}),
                        .values = tensor({9, 2, 9}, kInt64),
                        .dense_shape = {3, 2}};
    GradientTape tape;
    const Tensor out = safe_embedding_lookup_sparse(table, ids, {.default_id = 4});
    const Gradients g = tape.gradient(out.sum(), std::span(&table, 1));
    return std::pair(numbers(out), numbers(g[0].gradient.as_tensor()));
  };
  const auto here = looked_up(OneDeviceStrategy("CPU:0"));
  for (const int shards : {1, 3}) {
    EXPECT_EQ(looked_up(test.coordinator(fixed_shards_partitioner(shards))), here) << shards;
  }
}

TEST(RemoteVariables, SaveAsOneTensorAndRestoreInOtherShards) {
  const cohort::testing::TemporaryFolder folder;
  const TestServers test(3);
  const Tensor value = (arange(26).to(kFloat32)).reshape({13, 2});
  const std::string path = folder / "ckpt";
  {
    const Strategy strategy = test.coordinator(fixed_shards_partitioner(5));
    const auto scope = strategy.scope();
    const Variable v(value, {.name = "v"});
    Checkpoint({{"v", v}}).save(path);
  }
  for (const int shards : {1, 2, 13}) {
    const Strategy strategy = test.coordinator(fixed_shards_partitioner(shards));
    const auto scope = strategy.scope();
    const Variable v(zeros({13, 2}), {.name = "v"});
    Checkpoint({{"v", v}}).restore(path);
    EXPECT_TRUE(v.value().equal(value)) << shards;
  }
  const Variable here(zeros({13, 2}));
  Checkpoint({{"v", here}}).restore(path);
  EXPECT_TRUE(here.value().equal(value));
}

TEST(RemoteVariables, RefuseWhatMakesNoSense) {
  const TestServers test(1);
  const Strategy strategy = test.coordinator();
  const Strategy worker = test.worker(0);
  {
    const auto scope = worker.scope();
    testing::expect_error<InvalidArgument>({"name", "worker"}, [] { Variable(1.0); });
  }
  const auto scope = strategy.scope();
  EXPECT_THROW(Variable(1.0, {.trainable = true, .per_worker = true}), InvalidArgument);
  EXPECT_THROW(Variable(1.0, {.synchronization = Synchronization::kNone}), InvalidArgument);
  EXPECT_THROW(Variable(1.0, {.aggregation = static_cast<Aggregation>(9)}), InvalidArgument);
  const Variable frozen(zeros({2}), {.name = "frozen", .trainable = false});
  const Variable w(zeros({2}), {.name = "w"});
  auto& store = *strategy.extended().parameter_store();
  testing::expect_error<InvalidArgument>({"\"frozen\""}, [&] { store.make_updater({frozen}, {}); });
  testing::expect_error<InvalidArgument>({"\"w\"", "twice"}, [&] {
    store.make_updater({w, w}, {});
  });
  const auto updater = store.make_updater({w}, {});
  const update_rules::Rule rule = update_rules::SgdStep{};
  EXPECT_THROW(updater->apply({{Gradient(zeros({3})), w}}, rule), InvalidArgument);
  EXPECT_THROW(updater->apply({{Gradient(zeros({2})), frozen}}, rule), InvalidArgument);
  EXPECT_THROW(updater->apply({{Gradient(zeros({2})), w}, {Gradient(zeros({2})), w}}, rule),
               InvalidArgument);
}

TEST(ParameterServerStrategy, K13_RefusesClustersWithoutWorkersOrServers) {
  const auto check = [](const ClusterSpec& spec, const char* type) {
    check_parameter_cluster(spec, std::string(type));
  };
  const ClusterSpec good({{"chief", {"a:1"}}, {"worker", {"b:1"}}, {"ps", {"c:1"}}});
  check(good, "chief");
  testing::expect_error<InvalidArgument>({"got none"}, [&] { check({}, "chief"); });
  testing::expect_error<InvalidArgument>({"at least one", "\"ps\""}, [&] {
    check(ClusterSpec({{"worker", {"b:1"}}}), "chief");
  });
  testing::expect_error<InvalidArgument>({"at least one", "\"worker\""}, [&] {
    check(ClusterSpec({{"ps", {"b:1"}}}), "chief");
  });
  testing::expect_error<InvalidArgument>({"\"master\""}, [&] {
    check(ClusterSpec({{"master", {"a:1"}}, {"worker", {"b:1"}}, {"ps", {"c:1"}}}), "chief");
  });
  testing::expect_error<InvalidArgument>({"\"trainer\""}, [&] { check(good, "trainer"); });
  testing::expect_error<InvalidArgument>({"\"worker\"", "run_task"},
                                         [&] { check(good, "worker"); });
}

}  // namespace
}  // namespace cohort::internal::coordinator
