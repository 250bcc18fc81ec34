// SPDX-License-Identifier: Apache-2.0
//
// What a program's own train_step logs of several losses, of other models' and of other values:
// the same numbers whatever the replicas and however the rows are split.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

constexpr int64_t kRows = 5;

Dense line() { return Dense(1, {.use_bias = false, .kernel_initializer = "ones"}); }
CompileOptions options() {
  return {.optimizer = SGD({.learning_rate = 0.01}), .loss = "mse", .metrics = {"mae"}};
}

// Learns from labels and from a teacher, which has a loss of its own.
struct Student : Model {
  Dense out = add("out", line());
  Model* teacher = nullptr;
  Tensor call(const Tensor& x, const CallArgs& args) override { return out(x, args); }

  Logs values(const Tensor& x, const Tensor& y, bool trains) {
    GradientTape tape;
    const Tensor y_pred = (*this)(x, {.training = trains});
    const Tensor a = compute_loss(x, y, y_pred);
    const Tensor b = compute_loss(x, y * 3, y_pred);
    const Tensor c = teacher->compute_loss(x, y + 1, y_pred);
    const Tensor each = (y - y_pred).abs().sum(-1);
    const Tensor own = compute_average_loss(each, {.global_batch_size = kRows});
    const Tensor total = a + 0.25 * (b - c) + own / 2;
    if (trains) optimizer().apply_gradients(tape.gradient(total, trainable_variables()));
    return {{"a", a},
            {"b", b.item<double>()},
            {"c", c.detach().clone()},
            {"own", own},
            {"sum", a + b + c},  // after the gradient, where nothing is recorded
            {"average", (a + c) / 2},
            {"total", total},
            {"mean", y_pred.mean()},
            {"count", scalar(16777217, kInt64)}};
  }
  Logs train_step(const Element& batch) override {
    return values(batch[0].tensor(), batch[1].tensor(), true);
  }
  Logs test_step(const Element& batch) override {
    const at::NoGradGuard no_grad;
    Logs logs = values(batch[0].tensor(), batch[1].tensor(), false);
    return {{"a", logs.value("a")},
            {"c", logs.value("c")},
            {"sum", logs.value("sum")},
            {"weighted", logs.value("a") * 0.3},
            {"weighted number", logs.value("c").item<double>() * -7},
            {"mean", logs.value("mean")}};
  }
};

struct Seen {
  Logs trained, tested;
  std::vector<float> weights;
};

Seen steps_of(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Sequential teacher({line()});
  teacher.compile(options());
  Student student;
  student.teacher = &teacher;
  student.compile(options());
  const Tensor x = (arange(kRows * 2, kFloat32).view({kRows, 2}) * 0.7).sin() + 2;
  const Tensor y = arange(kRows, kFloat32).unsqueeze(1);
  const Dataset data = Dataset::from_tensor_slices({x, y}).batch(kRows);
  student.fit(data, {.epochs = 2, .verbose = Verbose::kSilent});
  Seen seen;
  seen.trained = student.train_on_batch(x, y);
  seen.tested = student.test_on_batch(x, y);
  seen.weights = to_vector<float>(student.get_weights()[0]);
  return seen;
}

class StepValues : public ::testing::TestWithParam<int> {
 protected:
  const Strategy strategy_ = testing::strategy_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Replicas, StepValues, ::testing::Values(1, 2, 3, 7));

TEST_P(StepValues, OfSeveralLossesAndModelsAreThoseOfOneReplica) {
  const Seen one = steps_of(get_strategy()), seen = steps_of(strategy_);
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_NEAR(seen.weights[i], one.weights[i], 1e-6);
  }
  const auto same = [](const Logs& logs, const Logs& expected) {
    ASSERT_EQ(logs.names(), expected.names());
    for (const std::string& name : expected.names()) {
      const Tensor value = logs.value(name).to(kFloat64), right = expected.value(name).to(kFloat64);
      EXPECT_TRUE(value.allclose(right, 1e-5)) << name << ": " << value << " for " << right;
    }
  };
  same(seen.trained, one.trained);
  same(seen.tested, one.tested);
}

TEST_P(StepValues, OfIntegersAreNotRounded) {
  EXPECT_EQ(steps_of(strategy_).trained.value("count").item<int64_t>(), 16777217);
}

// Functions of shares that are no shares.
struct Perplexity : Model {
  Dense out = add("out", line());
  bool together = false;
  Tensor call(const Tensor& x, const CallArgs& args) override { return out(x, args); }
  Logs train_step(const Element& batch) override {
    const Tensor y_pred = (*this)(batch[0].tensor(), {.training = true});
    Tensor loss = compute_loss(batch[0].tensor(), batch[1].tensor(), y_pred);
    if (together) loss = get_replica_context().all_reduce(ReduceOp::kSum, loss);
    return {{"perplexity", loss.exp()}};
  }
};

TEST_P(StepValues, ThatAreNoSharesAreRefusedUnlessReplicasAgree) {
  const auto scope = strategy_.scope();
  Perplexity model;
  model.compile(options());
  const Tensor x = ones({kRows, 2}), y = ones({kRows, 1});
  const auto step = [&] { return model.train_on_batch(x, y).number("perplexity"); };
  if (GetParam() == 1) {
    EXPECT_NEAR(step(), std::exp(1.0), 1e-5);
  } else {
    testing::expect_error<InvalidArgument>(
        {"[train_on_batch]", "\"perplexity\"", "share of the loss", "keras::Mean"}, step);
  }
  model.together = true;
  EXPECT_NEAR(step(), std::exp(1.0), 1e-5);
}

// Replicas agree on NaN, too, and TerminateOnNaN wants to see it.
TEST_P(StepValues, MayBeNanWhereReplicasAgree) {
  const auto scope = strategy_.scope();
  Perplexity model;
  model.together = true;
  model.compile(options());
  const Tensor x = ones({kRows, 2});
  const Tensor y = ones({kRows, 1}) * std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(model.train_on_batch(x, y).number("perplexity")));
}

}  // namespace
}  // namespace cohort::keras
