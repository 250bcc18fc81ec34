// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/deadline.h"

namespace cohort::keras {
namespace {

struct Scale : LayerBase {
  Variable gain;
  std::atomic<int> builds{0};
  void build(const Shape& in) override {
    ++builds;
    gain = add_weight({.name = "gain", .shape = {in.back()}, .initializer = "ones"});
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x * gain; }
  std::string class_name() const override { return "Scale"; }
};

struct Block : LayerBase {
  std::vector<Layer> inner;
  Variable shift;
  Block() {
    inner = {add("first", Dense(4, {.kernel_regularizer = L2(0.5)})), add("second", Dense(2))};
  }
  void build(const Shape&) override {
    shift = add_weight({.name = "shift", .shape = {2}, .initializer = "zeros"});
  }
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return inner[1](inner[0](x, args), args) + shift;
  }
  std::string class_name() const override { return "Block"; }
};

TEST(Layer, NamesFollowKeras) {
  clear_session();
  EXPECT_EQ(Dense(1).name(), "dense");
  EXPECT_EQ(Dense(1).name(), "dense_1");
  EXPECT_EQ(Conv2D(1, 1).name(), "conv2d");
  EXPECT_EQ(MaxPooling2D().name(), "max_pooling2d");
  EXPECT_EQ(GlobalAveragePooling2D().name(), "global_average_pooling2d");
  EXPECT_EQ(BatchNormalization().name(), "batch_normalization");
  EXPECT_EQ(ReLU().name(), "re_lu");
  EXPECT_EQ(InputLayer({1}).name(), "input_layer");
  EXPECT_EQ(Dense(1, {.name = "mine"}).name(), "mine");
  EXPECT_EQ(Dense(1).name(), "dense_2");
  clear_session();
  EXPECT_EQ(Dense(1).name(), "dense");
}

TEST(Layer, OfAUserBuildsOnTheFirstCall) {
  clear_session();
  const auto scale = std::make_shared<Scale>();
  const Layer layer = scale;
  EXPECT_FALSE(scale->built());
  EXPECT_TRUE(layer.variables().empty());
  const Tensor x = from_vector<float>({3, 4}, {1, 2});
  EXPECT_EQ(to_vector<float>(layer(x)), (std::vector<float>{3, 4}));
  layer(x);
  EXPECT_EQ(scale->builds, 1);
  ASSERT_EQ(layer.variables().size(), 1U);
  EXPECT_EQ(layer.variables()[0].name(), "scale/gain");
  GradientTape tape;
  const Tensor g = tape.gradient(layer(x).sum(), scale->gain);
  EXPECT_EQ(to_vector<float>(g), (std::vector<float>{3, 4}));
}

// Reads where it is while it makes its weights, as layers that scale or count by replicas do.
struct Curious : LayerBase {
  bool cross_replica = false;
  bool has_replica_context = true;
  float reduced = 0;
  std::string refused;
  void build(const Shape& in) override {
    cross_replica = in_cross_replica_context();
    has_replica_context = static_cast<bool>(get_replica_context());
    reduced = get_strategy().reduce(ReduceOp::kMean, scalar(3)).item<float>();
    try {
      get_replica_context().all_reduce(ReduceOp::kSum, scalar(3));
    } catch (const FailedPrecondition& e) {
      refused = e.what();
    }
    add_weight({.name = "w", .shape = {in.back()}, .initializer = "ones"});
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  std::string class_name() const override { return "Curious"; }
};

TEST(Layer, BuildsCrossReplicaAlsoInsideRun) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    const MirroredStrategy strategy(replicas == 1 ? std::vector<Device>{"CPU:0"}
                                                  : std::vector<Device>{"CPU:0", "CPU:1"});
    const auto scope = strategy.scope();
    const auto curious = std::make_shared<Curious>();
    const Layer layer = curious;
    testing::run_with_deadline(std::chrono::seconds(60), [&] {
      const auto ids = strategy.run([&] {
        layer(ones({1, 2}));
        return get_replica_context().replica_id_in_sync_group();
      });
      EXPECT_EQ(ids[static_cast<std::size_t>(replicas) - 1], replicas - 1);
    });
    EXPECT_TRUE(curious->cross_replica);
    EXPECT_FALSE(curious->has_replica_context);
    EXPECT_EQ(curious->reduced, 3);
    EXPECT_NE(curious->refused.find("cross-replica context"), std::string::npos)
        << curious->refused;
  }
}

TEST(Layer, RefusesWeightsOfUnknownSize) {
  Scale layer;
  EXPECT_THROW(layer(tensor({1, 2})), InvalidArgument);  // its one axis is the batch
  EXPECT_FALSE(layer.built());
}

TEST(Layer, CountsTheWeightsOfSubLayers) {
  const auto block = std::make_shared<Block>();
  const Layer layer = block;
  layer(ones({2, 3}));
  EXPECT_EQ(layer.variables().size(), 5U);
  EXPECT_EQ(layer.variables()[1].name(), "first/kernel");
  EXPECT_EQ(layer.trainable_variables().size(), 5U);
  block->inner[1].set_trainable(false);
  EXPECT_FALSE(block->inner[1].trainable());
  EXPECT_EQ(layer.trainable_variables().size(), 3U);
  EXPECT_EQ(block->non_trainable_variables().size(), 2U);
  block->set_trainable(false);
  EXPECT_TRUE(layer.trainable_variables().empty());
  block->set_trainable(true);
  EXPECT_EQ(layer.trainable_variables().size(), 5U);
}

TEST(Layer, KeepsItsListsWhileOthersChange) {
  Dense layer(2);
  layer(ones({1, 2}));
  const auto before = layer.variables();
  Dense other(2);
  other(ones({1, 2}));
  EXPECT_EQ(layer.variables().data(), before.data());
}

TEST(Layer, SumsThePenaltiesOfTrainableWeights) {
  const auto block = std::make_shared<Block>();
  (*block)(ones({2, 3}));
  const Variable kernel = block->variables()[1];
  kernel.assign(full({3, 4}, 2));
  EXPECT_NEAR(block->regularization_loss().item<double>(), 0.5 * 12 * 4, 1e-5);
  block->inner[0].base().set_trainable(false);
  EXPECT_FALSE(block->regularization_loss().defined());
}

TEST(Layer, BuildsOnceForAllReplicas) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scale = std::make_shared<Scale>();
  const Layer layer = scale;
  const auto y = cohort::testing::run_with_deadline(std::chrono::seconds(30), [&] {
    return strategy.run([&](const Tensor& x) { return layer(x); }, ones({1, 2}));
  });
  EXPECT_EQ(scale->builds, 1);
  EXPECT_EQ(scale->gain.components().size(), 2U);
  EXPECT_EQ(strategy.local_results(y).size(), 2U);
}

struct Broken : LayerBase {
  int builds = 0;
  void build(const Shape&) override {
    add_weight({.name = "w", .shape = {1}, .initializer = "zeros"});
    if (++builds == 1) throw InvalidArgument("[broken] expected another day");
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
  std::string class_name() const override { return "Broken"; }
};

TEST(Layer, CanBeBuiltAgainAfterAnError) {
  Broken layer;
  EXPECT_THROW(layer(ones({1, 1})), InvalidArgument);
  EXPECT_FALSE(layer.built());
  layer(ones({1, 1}));
  EXPECT_EQ(layer.variables().size(), 1U);
}

struct BrokenBlock : LayerBase {
  bool fails = true;
  Layer inner = Flatten();
  void build(const Shape&) override {
    inner = add("inner", Dense(2));
    if (std::exchange(fails, false)) throw InvalidArgument("not today");
  }
  Tensor call(const Tensor& x, const CallArgs& args) override { return inner(x, args); }
};

TEST(Layer, LetsGoOfTheSubLayersOfABuildThatFailed) {
  const Layer layer = std::make_shared<BrokenBlock>();
  EXPECT_THROW(layer(ones({1, 3})), InvalidArgument);
  EXPECT_TRUE(layer.base().sub_layers().empty());
  layer(ones({1, 3}));
  EXPECT_EQ(layer.base().sub_layers().size(), 1u);
  EXPECT_EQ(layer.variables().size(), 2u);
}

TEST(Layer, TakesItsTypeFromFloatx) {
  EXPECT_EQ(floatx(), kFloat32);
  set_floatx(kFloat64);
  Dense layer(2);
  layer(ones({1, 2}, kFloat64));
  set_floatx(kFloat32);
  EXPECT_EQ(layer.variables()[0].dtype(), kFloat64);
  EXPECT_THROW(set_floatx(kInt32), InvalidArgument);
}

TEST(Regularizer, KnowsKerasNames) {
  const Tensor w = tensor({1, -2});
  EXPECT_NEAR(Regularizer("l1")(w).item<double>(), 0.03, 1e-7);
  EXPECT_NEAR(Regularizer("l2")(w).item<double>(), 0.05, 1e-7);
  EXPECT_NEAR(Regularizer("l1_l2")(w).item<double>(), 0.08, 1e-7);
  EXPECT_THROW(Regularizer("l3"), InvalidArgument);
  EXPECT_FALSE(Regularizer());
}

}  // namespace
}  // namespace cohort::keras
