// SPDX-License-Identifier: Apache-2.0
//
// What golden files do not show of recurrent layers: gradients of every kind, draws, states that
// stay, masks on their way through a model, and replicas.
#include "cohort/keras/layers/recurrent.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/error.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<Tensor>;

Tensor draw(const Shape& shape) { return random_normal(shape); }

void expect_near(const Tensor& got, const Tensor& want, double tolerance = 1e-5) {
  ASSERT_EQ(shape_of(got), shape_of(want));
  if (want.numel() == 0) return;
  EXPECT_LE((got - want).abs().max().item<double>(), tolerance) << got << " for " << want;
}

Tensor plain_lstm(const Tensor& x, const Weights& w) {
  Tensor h = at::zeros({x.size(0), w[1].size(0)}, x.options()), c = h;
  std::vector<Tensor> all;
  for (int64_t t = 0; t < x.size(1); ++t) {
    const std::vector<Tensor> z = (x.select(1, t).mm(w[0]) + h.mm(w[1]) + w[2]).chunk(4, -1);
    c = z[1].sigmoid() * c + z[0].sigmoid() * z[2].tanh();
    h = z[3].sigmoid() * c.tanh();
    all.push_back(h.unsqueeze(1));
  }
  return concat(all, 1);
}

Tensor plain_gru(const Tensor& x, const Weights& w) {
  Tensor h = at::zeros({x.size(0), w[1].size(0)}, x.options());
  for (int64_t t = 0; t < x.size(1); ++t) {
    const std::vector<Tensor> a = (x.select(1, t).mm(w[0]) + w[2][0]).chunk(3, -1);
    const std::vector<Tensor> b = (h.mm(w[1]) + w[2][1]).chunk(3, -1);
    const Tensor z = (a[0] + b[0]).sigmoid();
    h = z * h + (1 - z) * (a[2] + (a[1] + b[1]).sigmoid() * b[2]).tanh();
  }
  return h;
}

TEST(Recurrent, GradientsMatchPlainOperations) {
  testing::check_gradients(
      {.name = "lstm",
       .make = []() -> Layer {
         return LSTM(3, {.bias_initializer = "random_normal", .return_sequences = true});
       },
       .input = {4, 3, 3},
       .reference = plain_lstm});
  testing::check_gradients(
      {.name = "gru",
       .make = []() -> Layer { return GRU(3, {.bias_initializer = "random_normal"}); },
       .input = {4, 3, 3},
       .reference = plain_gru});
}

// With the identity for a kernel and nothing of the state, outputs are what was left of the inputs.
TEST(Recurrent, DropoutIsTheSameInAllStepsAndNewInEachCall) {
  set_seed(3);
  const SimpleRNN layer(200, {.activation = "linear",
                              .kernel_initializer = "identity",
                              .recurrent_initializer = "zeros",
                              .dropout = 0.25,
                              .return_sequences = true});
  const Tensor x = ones({40, 3, 200});
  const Tensor first = layer(x, {.training = true}), second = layer(x, {.training = true});
  expect_near(first.select(1, 0), first.select(1, 2), 0);
  EXPECT_NEAR(first.eq(0).to(kFloat32).mean().item<double>(), 0.25, 0.02);
  EXPECT_NEAR(first.max().item<double>(), 1 / 0.75, 1e-6);
  EXPECT_GT((first - second).abs().sum().item<double>(), 0);
  expect_near(layer(x), x, 0);
}

// The state's share of the output: dropped numbers of h do not come back.
TEST(Recurrent, RecurrentDropoutTakesTheState) {
  set_seed(4);
  for (const char* kind : {"simple", "lstm", "gru"}) {
    Layer layer = SimpleRNN(50, {.recurrent_dropout = 0.5});
    if (kind == std::string("lstm")) layer = LSTM(50, {.dropout = 0.5, .recurrent_dropout = 0.5});
    if (kind == std::string("gru")) layer = GRU(50, {.dropout = 0.5, .recurrent_dropout = 0.5});
    const Tensor x = draw({4, 3, 5});
    const Tensor a = layer(x, {.training = true}), b = layer(x, {.training = true});
    EXPECT_GT((a - b).abs().max().item<double>(), 1e-3) << kind;
    EXPECT_TRUE(a.isfinite().all().item<bool>()) << kind;
    expect_near(layer(x), layer(x), 0);
  }
}

TEST(Recurrent, StatefulLayersGoOnWhereTheyWere) {
  const LSTM whole(3, {.return_sequences = true});
  const LSTM parts(3, {.return_sequences = true, .stateful = true});
  const Tensor x = draw({2, 6, 4});
  const Tensor want = whole(x);
  parts(x);
  for (std::size_t i = 0; i < 3; ++i) {
    parts.trainable_variables()[i].assign(whole.variables()[i].value());
  }
  for (int again = 0; again < 2; ++again) {
    parts.reset_state();
    expect_near(parts(x.narrow(1, 0, 2)), want.narrow(1, 0, 2));
    expect_near(parts(x.narrow(1, 2, 4)), want.narrow(1, 2, 4));
  }
  EXPECT_EQ(parts.variables().size(), 5U);
  EXPECT_THROW(parts(draw({3, 2, 4})), InvalidArgument);
  EXPECT_THROW(whole.reset_state(), FailedPrecondition);
}

TEST(Recurrent, StatesOfReplicasAreTheirOwn) {
  auto strategy = cohort::testing::strategy_of(2);
  const auto scope = strategy.scope();
  const GRU layer(2, {.stateful = true});
  const Tensor x = draw({4, 3, 2});
  const auto both = [&] {
    const auto all = strategy.run([&] { return layer(x.narrow(0, 2 * current_replica(), 2)); });
    return std::vector<Tensor>(all.begin(), all.end());
  };
  both();
  layer.reset_state();
  const auto first = both();
  const auto second = both();
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_GT((first[r] - second[r]).abs().max().item<double>(), 1e-4) << r;
  }
  layer.reset_state();
  const auto anew = both();
  for (std::size_t r = 0; r < 2; ++r) expect_near(anew[r], first[r], 0);
}

TEST(Recurrent, PaddingDoesNotCountInAModel) {
  Sequential model({Embedding(6, 4, {.mask_zero = true}), LSTM(3, {.return_sequences = true}),
                    GRU(2), Dense(1)});
  const Tensor padded = model(tensor({3, 1, 5, 0, 0, 0}, kInt64).view({1, 6}));
  const Tensor bare = model(tensor({3, 1, 5}, kInt64).view({1, 3}));
  expect_near(padded, bare, 1e-6);
  const Tensor more = model(tensor({3, 1, 5, 2, 2, 2}, kInt64).view({1, 6}));
  EXPECT_GT((more - bare).abs().max().item<double>(), 1e-4);
}

// Two replicas of half a batch train as one of the whole.
TEST(Recurrent, ReplicasTrainAsOne) {
  std::vector<Tensor> trained;
  const Tensor x = arange(48, kInt64).remainder(7).view({8, 6});
  const Tensor y = x.to(kFloat32).mean(-1, true);
  for (const int replicas : {1, 2}) {
    set_seed(7);
    const auto strategy = cohort::testing::strategy_of(replicas);
    const auto scope = strategy.scope();
    Sequential model({Embedding(7, 4, {.mask_zero = true}),
                      Bidirectional(LSTM(3, {.return_sequences = true})), GRU(2), Dense(1)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
    model.fit(x, y, {.epochs = 3, .batch_size = 8, .verbose = Verbose::kSilent, .shuffle = false});
    trained.push_back(model.predict(x));
  }
  expect_near(trained[1], trained[0], 1e-5);
}

TEST(Recurrent, NestsOfStatesComeAndGo) {
  const LSTM layer(2, {.return_state = true});
  const Tensor x = draw({3, 4, 5});
  const Element out = layer(Element(x));
  ASSERT_EQ(out.size(), 3U);
  expect_near(out[0].tensor(), out[1].tensor(), 0);
  const Element by_argument = layer(Element(x), {.initial_state = {out[1], out[2]}});
  const Element by_nest = layer(Element{x, out[1], out[2]});
  expect_near(by_argument[0].tensor(), by_nest[0].tensor(), 0);
  EXPECT_THROW(layer(x), InvalidArgument);  // three outputs are not one tensor
  EXPECT_THROW(layer(Element(x), {.initial_state = {out[1]}}), InvalidArgument);
}

struct Leak : RNNCellBase {
  Shape state_size() const override { return {3}; }
  Tensor step(const Tensor& x, std::vector<Tensor>& states, const CallArgs&) override {
    return states[0] = states[0] * 0.5 + x;
  }
};

TEST(Recurrent, AProgramsCellRuns) {
  const RNN layer(std::make_shared<Leak>());
  const Tensor x = draw({2, 3, 3});
  const Tensor want = x.select(1, 0) * 0.25 + x.select(1, 1) * 0.5 + x.select(1, 2);
  expect_near(layer(x), want, 1e-6);
  EXPECT_THROW(RNN(Dense(3)), InvalidArgument);
}

TEST(Recurrent, ForgetGatesBeginWithOne) {
  const LSTM layer(2);
  layer.base().ensure_built({kUnknownDim, 3, 4});
  expect_near(layer.variables()[2].value(), tensor({0, 0, 1, 1, 0, 0, 0, 0}), 0);
}

TEST(Recurrent, RefusesWhatItCannotDo) {
  EXPECT_THROW(LSTM(2, {.use_cudnn = true}), Unimplemented);
  EXPECT_THROW(GRU(2, {.use_cudnn = true}), Unimplemented);
  EXPECT_THROW(Embedding(3, 2, {.lora_rank = 2}), Unimplemented);
  EXPECT_THROW(LSTM(0), InvalidArgument);
  EXPECT_THROW(GRU(2, {.dropout = 1.5}), InvalidArgument);
  EXPECT_THROW(Embedding(0, 2), InvalidArgument);
  EXPECT_THROW(Embedding(3, 2)(tensor({3}, kInt64)), InvalidArgument);
  EXPECT_THROW(LSTM(2)(draw({2, 3})), InvalidArgument);
  EXPECT_THROW(LSTM(2)(draw({2, 0, 3})), InvalidArgument);
  EXPECT_THROW(LSTM(2)(draw({2, 4, 3}), {.mask = ones({2, 3}, kBool)}), InvalidArgument);
  EXPECT_THROW(Bidirectional(Dense(2)), InvalidArgument);
  EXPECT_THROW(Bidirectional(LSTM(2), {.backward_layer = LSTM(2)}), InvalidArgument);
  EXPECT_THROW(ConvLSTM2D(2, {3, 3, 3}), InvalidArgument);
}

TEST(Recurrent, EmptyBatchesHaveNoRows) {
  EXPECT_EQ(shape_of(LSTM(2)(empty({0, 3, 4}))), (Shape{0, 2}));
  EXPECT_EQ(shape_of(GRU(2, {.return_sequences = true})(empty({0, 3, 4}))), (Shape{0, 3, 2}));
}

TEST(Embedding, BeginsWithGivenRowsAndGivesSparseGradients) {
  const Tensor rows = draw({4, 2});
  const Embedding layer(4, 2, {.weights = rows});
  expect_near(layer(tensor({3, 1}, kInt64)), rows.index_select(0, tensor({3, 1}, kInt64)), 0);
  expect_near(layer(tensor({3, 1}, kFloat32)), rows.index_select(0, tensor({3, 1}, kInt64)), 0);
}

// What a layer of a program does with the batch of a step stays with that step.
struct MinusMean : LayerBase {
  Tensor call(const Tensor& x, const CallArgs&) override { return x - x.mean(0); }
};

TEST(TimeDistributed, StepsDoNotSeeEachOther) {
  const Tensor x = draw({3, 4, 2});
  expect_near(TimeDistributed(std::make_shared<MinusMean>())(x), x - x.mean(0), 1e-6);
}

// A state goes from step to step, as in Keras, which calls the layer for each.
TEST(TimeDistributed, AStatefulLayerGoesOnFromStepToStep) {
  const Tensor x = draw({2, 3, 5, 4});
  const LSTM alone(3, {.stateful = true});
  const TimeDistributed steps(alone);
  const Tensor got = steps(x);
  alone.reset_state();
  for (int64_t t = 0; t < 3; ++t) expect_near(got.select(1, t), alone(x.select(1, t)), 1e-6);
}

TEST(TimeDistributed, HandsTheMaskOfItsRowsToStatistics) {
  Tensor x = draw({4, 2, 3}) + 2;
  x[3][1].zero_();
  const BatchNormalization normalization;
  const TimeDistributed steps(normalization);
  steps(Masking()(x), {.training = true});
  const BatchNormalization expected;
  expected(x.select(1, 0), {.training = true});
  expected(x.select(1, 1).slice(0, 0, 3), {.training = true});
  const auto got = normalization.variables(), want = expected.variables();
  for (std::size_t i = 0; i < want.size(); ++i) expect_near(got[i].value(), want[i].value(), 1e-6);
}

}  // namespace
}  // namespace cohort::keras
