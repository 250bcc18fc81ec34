// SPDX-License-Identifier: Apache-2.0
//
// What comes with the call of a layer: several inputs, masks, losses that are added, dtypes.
#include <gtest/gtest.h>

#include "cohort/keras/layers/layers.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;
using testing::strategy_of;

struct NoOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto&, auto&&) {}
};

// Gives the sum, and the difference by name.
struct SumAndDifferenceLayer : LayerImpl<NoOptions, NestLayer> {
  using LayerImpl::LayerImpl;
  Variable gain;
  void build_nest(const ElementSpec& inputs) override {
    gain =
        add_weight({.name = "gain", .shape = {inputs[1].leaf().shape[1]}, .initializer = "ones"});
  }
  Element call_nest(const Element& in, const CallArgs&) override {
    const Tensor a = in[0].tensor(), b = in[1].tensor() * gain;
    return Element::named({{"sum", a + b}, {"difference", a - b}});
  }
};
using SumAndDifference = Handle<SumAndDifferenceLayer>;

// Steps that are 0 do not count.
struct MaskZerosLayer : LayerImpl<NoOptions> {
  using LayerImpl::LayerImpl;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element& inputs, const Element&) const override {
    return inputs.tensor().ne(0);
  }
  Tensor call(const Tensor& x, const CallArgs&) override { return x.unsqueeze(-1) * 1.0; }
  Shape compute_output_shape(const Shape& in) const override { return {in[0], in[1], 1}; }
};
using MaskZeros = Handle<MaskZerosLayer>;

struct MeanOfStepsLayer : LayerImpl<NoOptions> {
  using LayerImpl::LayerImpl;
  bool supports_masking() const override { return true; }
  Element compute_mask(const Element&, const Element&) const override { return {}; }
  Tensor call(const Tensor& x, const CallArgs& args) override {
    if (!args.mask.has_value()) return x.mean(1);
    const Tensor kept = args.mask.tensor().to(x.scalar_type()).unsqueeze(-1);
    return (x * kept).sum(1) / kept.sum(1);
  }
  Shape compute_output_shape(const Shape& in) const override { return {in[0], in[2]}; }
};
using MeanOfSteps = Handle<MeanOfStepsLayer>;

struct AddsLossLayer : LayerImpl<NoOptions> {
  using LayerImpl::LayerImpl;
  Tensor call(const Tensor& x, const CallArgs&) override {
    add_loss(x.mean() * 10);
    return x;
  }
};
using AddsLoss = Handle<AddsLossLayer>;

TEST(Call, TakesAndGivesNests) {
  const SumAndDifference layer;
  const Element out = layer({full({2, 3}, 5), full({2, 3}, 2)});
  EXPECT_TRUE(out["sum"].tensor().equal(full({2, 3}, 7)));
  EXPECT_TRUE(out["difference"].tensor().equal(full({2, 3}, 3)));
  EXPECT_EQ(layer.base().get_build_config().to_json(),
            R"({"input_shape": [[null, 3], [null, 3]]})");
}

TEST(Call, OfSeveralInputsToALayerOfOneSaysSo) {
  const Dense dense(2, {.name = "one"});
  dense(zeros({1, 3}));
  expect_error<InvalidArgument>({"[one]", "expected one tensor", "Dense takes one input"}, [&] {
    dense({zeros({1, 3}), zeros({1, 3})});
  });
}

TEST(Call, MasksTravelFromTheLayerThatMakesThemToTheOneThatNeedsThem) {
  const Tensor x = from_vector<float>({1, 3, 0, 0, 2, 4, 6, 0}, {2, 4});
  Sequential model({MaskZeros(), Dropout(0.5), Activation("relu"), MeanOfSteps()});
  EXPECT_EQ(to_vector<float>(model(x)), (std::vector<float>{2, 4}));
  // In a program's own code, too.
  const MaskZeros zeros_out;
  const MeanOfSteps mean;
  EXPECT_EQ(to_vector<float>(mean(zeros_out(x))), (std::vector<float>{2, 4}));
  EXPECT_EQ(to_vector<float>(mean(zeros_out(x) + 0)), (std::vector<float>{1, 3}));
  // A mask that is given is the one.
  const Tensor first = from_vector<float>({1, 0, 0, 0, 1, 0, 0, 0}, {2, 4}).to(kBool);
  EXPECT_EQ(to_vector<float>(mean(zeros_out(x), {.mask = first})), (std::vector<float>{1, 2}));
}

TEST(Call, MasksEndAtLayersThatKnowNothingOfThem) {
  const Tensor x = from_vector<float>({1, 3, 0, 0}, {1, 4});
  Sequential model({MaskZeros(), Reshape({4, 1}), MeanOfSteps()});
  EXPECT_EQ(model(x).item<float>(), 1);
}

class CallUnder : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, CallUnder, ::testing::Values(1, 2));

// Keras: loss(y, y_pred) with y_pred._keras_mask; 4 of 8 steps count.
TEST_P(CallUnder, TheLossIsThatOfTheStepsThatCount) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  Sequential model({MaskZeros(), Activation("linear")});
  model.compile({.optimizer = "sgd", .loss = "mae"});
  const Tensor x = from_vector<float>({1, 3, 0, 0, 2, 4, 0, 0}, {2, 4});
  const Logs logs = model.test_on_batch(x, zeros({2, 4, 1}));
  EXPECT_NEAR(logs.number("loss"), 2.5, 1e-6);
}

TEST_P(CallUnder, AddedLossesJoinTheLoss) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  Sequential model({AddsLoss(), Dense(1, {.kernel_initializer = "ones"})});
  model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = "mse"});
  const Tensor x = from_vector<float>({1, 2, 3, 6}, {4, 1});
  EXPECT_NEAR(model.train_on_batch(x, x).number("loss"), 30, 1e-4);
  EXPECT_NEAR(model.test_on_batch(x, x).number("loss"), 30, 1e-4);
}

// Keras, one device: Dense(2, use_bias=False, kernel_initializer="ones",
// activity_regularizer="l2")(x) has losses [0.01 * 2 * (1 + 4 + 9 + 36) / 4] = [0.25].
TEST_P(CallUnder, ActivityRegularizersAreMeansOverTheWholeBatch) {
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  const Dense dense(
      2, {.use_bias = false, .kernel_initializer = "ones", .activity_regularizer = "l2"});
  Sequential model({dense});
  model.compile({.optimizer = SGD({.learning_rate = 1}), .loss = "mse"});
  const Tensor x = from_vector<float>({1, 2, 3, 6}, {4, 1});
  const Tensor y = x.expand({4, 2}).contiguous();
  EXPECT_NEAR(model.train_on_batch(x, y).number("loss"), 0.25, 1e-5);
  // d/dk 0.01 * sum (k x)^2 / 4 = 0.02 * 50 k / 4
  EXPECT_NEAR(model.get_weights()[0][0][0].item<float>(), 0.75, 1e-5);
  model.set_weights(std::vector<Tensor>{ones({1, 2})});
  const Tensor three = x.narrow(0, 0, 3);  // of which one replica has more
  const Logs logs = model.test_on_batch(three, y.narrow(0, 0, 3));
  EXPECT_NEAR(logs.number("loss"), 0.01 * 2 * 14 / 3, 1e-5);
}

TEST(Call, LayersSayWhatTheyAdded) {
  Sequential model({AddsLoss(), AddsLoss()});
  model(ones({2, 2}));
  model(ones({2, 2}));
  ASSERT_EQ(model.added_losses().size(), 2U);
  EXPECT_EQ(model.added_losses()[1].item<float>(), 10);
  EXPECT_EQ(model.layers()[0].base().added_losses().size(), 1U);
}

// As in Keras, where the outermost call begins with nothing.
TEST(Call, WhatALayerAddedByItselfIsNotTheModels) {
  const AddsLoss adds;
  Sequential model({adds, Dense(1, {.kernel_initializer = "ones"})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = from_vector<float>({1, 2, 3, 6}, {4, 1});
  const double alone = model.test_on_batch(x, x).number("loss");
  adds(x);
  EXPECT_EQ(model.test_on_batch(x, x).number("loss"), alone);
}

// Keras: Dense(4, dtype="mixed_bfloat16") gives bfloat16 of a float32 kernel.
TEST_P(CallUnder, MixedPrecisionComputesInBfloat16AndKeepsFloat32) {
  set_seed(1);
  const Strategy strategy = strategy_of(GetParam());
  auto scope = strategy.scope();
  set_dtype_policy("mixed_bfloat16");
  Sequential model({Dense(8, {.activation = "relu"}), Dropout(0.1), Dense(2),
                    Activation("softmax", {.dtype = kFloat32})});
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  const Tensor y = from_vector<int64_t>({0, 1, 0, 1}, {4});
  model.ensure_built({kUnknownDim, 2});
  set_dtype_policy({});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  const double first = model.train_on_batch(x, y).number("loss");
  double last = first;
  for (int i = 0; i < 20; ++i) last = model.train_on_batch(x, y).number("loss");
  EXPECT_LT(last, first);
  for (const Variable& v : model.variables()) EXPECT_EQ(v.dtype(), kFloat32) << v.name();
  EXPECT_EQ(model.predict(x).scalar_type(), kFloat32);
  EXPECT_EQ(model.layers()[0](x).scalar_type(), kBFloat16);
}

TEST(Call, MixedPoliciesAreInConfigs) {
  const Dense dense(2, {.dtype = "mixed_float16"});
  EXPECT_EQ(dense.get_config().at("dtype").at("config").text("name"), "mixed_float16");
  EXPECT_EQ(Layer::deserialize(dense.serialize()).base().dtype_policy().compute_dtype(), kFloat16);
}

}  // namespace
}  // namespace cohort::keras
