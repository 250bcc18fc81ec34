// SPDX-License-Identifier: Apache-2.0
//
// DynamicEmbedding against Embedding, which has a row for every id, and in files.
#include "cohort/keras/layers/dynamic_embedding.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/optimizers/whole_variable.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;

constexpr int64_t kIds = 12;
constexpr int64_t kDim = 4;

class DynamicEmbeddingFiles : public testing::FolderTest {};

using MakeOptimizer = std::function<Optimizer()>;
using Ids = std::vector<int64_t>;

/// Two ids a row; the last batch is smaller than the others.
Tensor ids() {
  Ids all;
  for (int64_t i = 0; i < 44; ++i) all.push_back((i * i * 5 + i) % kIds);
  return from_vector(all, {22, 2});
}
Tensor labels() { return ids().to(kFloat32).sin().sum(1, true); }

Sequential model_of(const Layer& embedding, const Optimizer& optimizer) {
  Sequential model(
      {InputLayer({2}), embedding, Flatten(), Dense(1, {.kernel_initializer = "ones"})});
  model.compile({.optimizer = optimizer, .loss = "mse"});
  return model;
}

void train(Sequential& model, int epochs = 3) {
  model.fit(ids(), labels(),
            {.epochs = epochs, .batch_size = 7, .verbose = Verbose::kSilent, .shuffle = false});
}

const std::vector<std::pair<std::string, MakeOptimizer>>& optimizers() {
  static const std::vector<std::pair<std::string, MakeOptimizer>> all = {
      {"sgd", [] { return SGD({.learning_rate = 0.1}); }},
      {"momentum", [] { return SGD({.learning_rate = 0.05, .momentum = 0.9}); }},
      {"adagrad", [] { return Adagrad({.learning_rate = 0.1}); }},
      {"adam", [] { return Adam({.learning_rate = 0.05}); }},
      {"lazy adam", [] { return Adam({.learning_rate = 0.05, .lazy_rows = true}); }}};
  return all;
}

Tensor every_id() { return arange(kIds).view({kIds / 2, 2}); }

Tensor first_rows() {
  const DynamicEmbedding any(1, kDim, {.seed = 3});
  any(zeros({1, 1}, kInt64));
  const DynamicTable table = any.table();
  Tensor out = zeros({kIds, kDim});
  for (int64_t id = 0; id < kIds; ++id) out[id].copy_(table.first_row(id));
  return out;
}

TEST(DynamicEmbedding, FitsAsAnEmbeddingWithARowForEveryId) {
  const Tensor rows = first_rows();
  for (const auto& [name, optimizer] : optimizers()) {
    for (const int replicas : {1, 2, 3}) {
      const Strategy strategy = testing::strategy_of(replicas);
      const auto scope = strategy.scope();
      Sequential fixed = model_of(Embedding(kIds, kDim, {.weights = rows}), optimizer());
      Sequential dynamic = model_of(DynamicEmbedding(kIds, kDim, {.seed = 3}), optimizer());
      train(fixed);
      train(dynamic);
      EXPECT_TRUE(dynamic.predict(every_id()).equal(fixed.predict(every_id())))
          << name << " on " << replicas;
    }
  }
}

TEST(DynamicEmbedding, OnlyTrainingGivesRows) {
  const DynamicEmbedding layer(8, kDim, {.admit_after = 3});
  Sequential model = model_of(layer, SGD());
  model.predict(ids());
  model.evaluate(ids(), labels(), {.verbose = Verbose::kSilent});
  EXPECT_EQ(layer.table().size(), 0);
  EXPECT_EQ(layer.table().candidates(), 0);
  train(model, 1);
  EXPECT_GT(layer.table().size(), 0);
  const int64_t size = layer.table().size();
  layer.set_trainable(false);
  model.compile({.optimizer = SGD(), .loss = "mse"});
  train(model, 1);
  EXPECT_EQ(layer.table().size(), size);
}

// The program of docs/guide/dynamic_embeddings.md.
TEST(DynamicEmbedding, GivesARowToWhatWasSeenOftenEnough) {
  const DynamicEmbedding users(1000, 8, {.admit_after = 2, .steps_to_live = 10000});
  Sequential model({users, Flatten(), Dense(1)});
  model.compile({.optimizer = Adagrad({.learning_rate = 0.1}), .loss = "mse"});
  const Tensor some = from_vector<int64_t>({7, 1LL << 40, 7, -3, 1LL << 40, 7}, {6, 1});
  model.fit(some, ones({6, 1}),
            {.epochs = 1, .batch_size = 2, .verbose = Verbose::kSilent, .shuffle = false});
  EXPECT_EQ(users.table().ids(), (Ids{7, int64_t{1} << 40}));
  EXPECT_EQ(users.table().candidates(), 1);
}

// Also the batch of which the layer is made.
TEST(DynamicEmbedding, CountsTheFirstBatchOnce) {
  const DynamicEmbedding users(8, 2, {.admit_after = 2});
  Sequential model({users, Flatten(), Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  model.fit(from_vector<int64_t>({11, 12, 12, 13}, {4, 1}), ones({4, 1}),
            {.batch_size = 2, .verbose = Verbose::kSilent, .shuffle = false});
  EXPECT_EQ(users.table().ids(), Ids{12});
  EXPECT_EQ(users.table().candidates(), 2);
}

TEST(DynamicEmbedding, TablesBeginWithOtherNumbers) {
  const auto first_row = [](DynamicEmbeddingOptions options) {
    const DynamicEmbedding layer(4, 3, std::move(options));
    layer(zeros({1, 1}, kInt64));
    return to_vector<float>(layer.table().first_row(5));
  };
  EXPECT_NE(first_row({.name = "users"}), first_row({.name = "items"}));
  EXPECT_EQ(first_row({.name = "users"}), first_row({.name = "users"}));
  EXPECT_EQ(first_row({.seed = 1, .name = "users"}), first_row({.seed = 1, .name = "items"}));
}

TEST_F(DynamicEmbeddingFiles, HaveIdsWithTheirRows) {
  const auto make = [] {
    return DynamicEmbedding(6, kDim, {.admit_after = 2, .steps_to_live = 9, .name = "users"});
  };
  const DynamicEmbedding layer = make();
  Sequential model = model_of(layer, Adagrad({.learning_rate = 0.1}));
  train(model);
  const Tensor before = model.predict(every_id());
  const Ids rows = layer.table().ids();
  EXPECT_FALSE(rows.empty());
  model.save(path("m.keras"));
  model.save_weights(path("m.weights.h5"));
  Checkpoint({{"model", model}}).save(path("c"));
  train(model, 2);
  const Tensor after = model.predict(every_id());

  const auto goes_on = [&](Model& loaded, const DynamicTable& table) {
    EXPECT_EQ(table.ids(), rows);
    EXPECT_TRUE(loaded.predict(every_id()).equal(before));
    loaded.fit(ids(), labels(),
               {.epochs = 2, .batch_size = 7, .verbose = Verbose::kSilent, .shuffle = false});
    EXPECT_EQ(table.ids(), layer.table().ids());
    EXPECT_TRUE(loaded.predict(every_id()).equal(after));
  };
  {
    const auto loaded = load_model(path("m.keras"));
    const auto& found = dynamic_cast<DynamicEmbeddingLayer&>(loaded->get_layer("users").base());
    goes_on(*loaded, found.table());
  }
  {
    const DynamicEmbedding fresh = make();
    Sequential restored = model_of(fresh, Adagrad({.learning_rate = 0.1}));
    Checkpoint({{"model", restored}}).restore(path("c"));
    goes_on(restored, fresh.table());
  }
  {
    const DynamicEmbedding fresh = make();
    Sequential restored = model_of(fresh, SGD());
    restored.load_weights(path("m.weights.h5"));
    EXPECT_EQ(fresh.table().ids(), rows);
    EXPECT_TRUE(restored.predict(every_id()).equal(before));
  }
}

TEST(DynamicEmbedding, SaysWhatItCannotDo) {
  EXPECT_THROW(DynamicEmbedding(0, 4), InvalidArgument);
  EXPECT_THROW(DynamicEmbedding(4, 0), InvalidArgument);
  EXPECT_THROW(DynamicEmbedding(4, 4, {.admit_after = 0}), InvalidArgument);
  expect_error<InvalidArgument>({"when_full", "least_recently_used", "got last"},
                                [] { DynamicEmbedding(4, 4, {.when_full = "last"}); });
  EXPECT_THROW(DynamicEmbedding(4, 4).table(), FailedPrecondition);
  EXPECT_THROW(DynamicEmbedding(4, 4)(zeros({1, 2})), InvalidArgument);
  const std::vector<std::pair<MakeOptimizer, std::string>> refused = {
      {[] { return SGD({.use_ema = true}); }, "use_ema"},
      {[] { return SGD({.gradient_accumulation_steps = 2}); }, "gradient_accumulation_steps"},
      {[] { return Lamb(); }, "slots of its own class"}};
  for (const auto& [optimizer, what] : refused) {
    Sequential model = model_of(DynamicEmbedding(4, 4), optimizer());
    expect_error<Unimplemented>({what, "DynamicTable"}, [&] { train(model, 1); });
  }
}

TEST(DynamicEmbedding, RowsAreNoWeightsByThemselves) {
  Sequential model = model_of(DynamicEmbedding(4, 4), SGD());
  train(model, 1);
  expect_error<Unimplemented>({"get_weights", "save_weights"}, [&] { model.get_weights(); });
  const std::vector<Tensor> none;
  expect_error<Unimplemented>({"set_weights", "Checkpoint"}, [&] { model.set_weights(none); });
}

struct OwnRule : OptimizerBase {
  void update(const Variable& w, const Gradient& g) override { w.assign_sub(Tensor(g)); }
};

// Also of a table that is made behind build().
TEST(DynamicEmbedding, OptimizersSayThatTheyCannotBeginAnew) {
  const std::vector<std::pair<Optimizer, std::string>> refused = {
      {std::make_shared<OwnRule>(), "writes variables itself"},
      {SGD({.use_ema = true}), "use_ema"},
      {SGD({.gradient_accumulation_steps = 2}), "gradient_accumulation_steps"}};
  for (const auto& [optimizer, what] : refused) {
    const Optimizer& each = optimizer;
    const Variable rows(zeros({4, 2}), {.name = "rows"});
    each.build(std::span(&rows, 1));
    const DynamicTable table(rows, {});
    table.see(zeros({1}, kInt64));
    expect_error<Unimplemented>({what, "DynamicTable"}, [&] {
      each.apply_gradients(Gradients({{Gradient(ones({4, 2})), rows}}));
    });
  }
}

}  // namespace
}  // namespace cohort::keras
