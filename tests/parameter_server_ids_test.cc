// SPDX-License-Identifier: Apache-2.0
//
// keras::DynamicEmbedding on parameter servers: the rows of one process, files between the two, and
// several workers with data of their own. Workers and servers are threads of this process.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/temporary_folder.h"

namespace cohort::keras {
namespace {

using cohort::testing::TestCluster;
using SomeIds = std::vector<int64_t>;

constexpr Verbose kQuiet = Verbose::kSilent;

/// Two ids a row, of any size; some come once.
Tensor looked_up() {
  SomeIds all;
  for (int64_t i = 0; i < 64; ++i) all.push_back(((i * i * 5 + i) % 23 - 11) * 1'000'000'007);
  return from_vector(all, {32, 2});
}
Tensor truth() { return (looked_up() % 97).to(kFloat32).sin().sum(1, true); }
Dataset pairs() { return Dataset::from_tensor_slices({looked_up(), truth()}); }
Dataset make_pairs(const InputContext& context) {
  return pairs().shard(context.num_input_pipelines, context.input_pipeline_id).repeat().batch(4);
}
COHORT_REGISTER_FUNCTION(make_pairs);

struct IdsJob {
  IdsJob(int workers, int servers)
      : cluster(workers, servers),
        strategy({.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec()),
                  .variable_partitioner = [](const Shape& shape, DType) {
                    std::vector<int64_t> parts(shape.size(), 1);
                    if (!shape.empty() && shape[0] >= 60) parts[0] = 2;
                    return parts;
                  }}) {
    clear_session();
  }
  TestCluster cluster;
  ParameterServerStrategy strategy;
};

DynamicEmbedding make_users() {
  return DynamicEmbedding(80, 4, {.admit_after = 2, .steps_to_live = 50, .name = "users"});
}

Sequential make_model(const Layer& users) {
  Sequential model({users, Flatten(), Dense(1, {.kernel_initializer = "ones", .name = "sum"})});
  model.compile({.optimizer = Adagrad({.learning_rate = 0.1}), .loss = "mse"});
  return model;
}

std::map<int64_t, std::vector<float>> rows_of(const DynamicTable& table) {
  std::map<int64_t, std::vector<float>> out;
  for (const int64_t id : table.ids()) {
    out[id] = to_vector<float>(table.lookup(from_vector<int64_t>({id}, {1})));
  }
  return out;
}

void train(Sequential& model, int epochs) {
  model.fit(pairs().batch(4), {.epochs = epochs, .verbose = kQuiet});
}

TEST(ParameterServerIds, OneWorkerGivesTheRowsOfOneProcess) {
  const cohort::testing::TemporaryFolder folder;
  clear_session();
  const DynamicEmbedding here = make_users();
  Sequential alone = make_model(here);
  train(alone, 2);
  const auto after_two = rows_of(here.table());
  EXPECT_GT(after_two.size(), 10U);
  Checkpoint({{"model", alone}}).save(folder / "ids_here");
  train(alone, 2);

  std::string saved;
  {
    const IdsJob job(1, 2);
    const auto scope = job.strategy.scope();
    const DynamicEmbedding there = make_users();
    Sequential model = make_model(there);
    train(model, 2);
    EXPECT_EQ(rows_of(there.table()), after_two);
    EXPECT_EQ(there.table().candidates(), 0);
    Checkpoint({{"model", model}}).save(folder / "ids_there");
    model.save_weights(folder / "ids.weights.h5");
    train(model, 2);
    EXPECT_EQ(rows_of(there.table()), rows_of(here.table()));
  }
  {
    const IdsJob job(1, 2);
    const auto scope = job.strategy.scope();
    const DynamicEmbedding there = make_users();
    Sequential model = make_model(there);
    Checkpoint({{"model", model}}).restore(folder / "ids_here");
    train(model, 2);
    EXPECT_EQ(rows_of(there.table()), rows_of(here.table()));
  }
  {
    clear_session();
    const DynamicEmbedding again = make_users();
    Sequential model = make_model(again);
    Checkpoint({{"model", model}}).restore(folder / "ids_there");
    train(model, 2);
    EXPECT_EQ(rows_of(again.table()), rows_of(here.table()));
  }
  {
    clear_session();
    const DynamicEmbedding again = make_users();
    Sequential model = make_model(again);
    model.predict(looked_up(), {.verbose = kQuiet});
    model.load_weights(folder / "ids.weights.h5");
    EXPECT_EQ(rows_of(again.table()), after_two);
  }
}

TEST(ParameterServerIds, WorkersTrainWithDataOfTheirOwn) {
  const IdsJob job(2, 2);
  const auto scope = job.strategy.scope();
  const DynamicEmbedding users = make_users();
  Sequential model = make_model(users);
  const History history = model.fit(DatasetCreator(make_pairs),
                                    {.epochs = 10, .verbose = kQuiet, .steps_per_epoch = 16});
  EXPECT_LT(history["loss"].back(), 0.5 * history["loss"].front());
  EXPECT_GT(users.table().size(), 10);
  EXPECT_LE(users.table().size(), 23);
  const int64_t size = users.table().size();
  model.evaluate(pairs().batch(8), {.verbose = kQuiet});
  const Tensor out = model.predict(looked_up(), {.verbose = kQuiet});
  EXPECT_EQ(users.table().size(), size);
  EXPECT_LT((out - truth()).square().mean().item<double>(), history["loss"].front());
}

// Its slots on the servers go by the numbers of rows.
TEST(ParameterServerIds, OptimizersOfWholeVariablesRefuseATableThatIsMadeLater) {
  const IdsJob job(1, 2);
  const auto scope = job.strategy.scope();
  const Variable rows(ones({80, 4}), {.name = "rows"});
  const Lamb lamb({.learning_rate = 0.1});
  lamb.build({rows});
  lamb.apply_gradients({{ones({80, 4}), rows}});
  const DynamicTable table(rows, {});
  testing::expect_error<Unimplemented>(
      {"[lamb]", "slots of its own class", "DynamicTable", "\"rows\""}, [&] {
        lamb.apply_gradients({{ones({80, 4}), rows}});
      });
}

}  // namespace
}  // namespace cohort::keras
