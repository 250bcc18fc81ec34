// SPDX-License-Identifier: Apache-2.0
//
// Training steps as CUDA graphs: the numbers of steps made operation by operation.
#include <ATen/Context.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/keras.h"
#include "cohort/runtime/device_backend.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/step_recorder.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"
#include "tests/gpu/gpu_fixture.h"

namespace cohort::gpu_tests {
namespace {

using namespace keras;
namespace runtime = cohort::internal::runtime;

Tensor waves(int64_t rows, int64_t columns) {
  return (arange(rows * columns, kFloat32).view({rows, columns}) * 0.37).sin() * 3;
}

Tensor classes(const Tensor& x) { return x.flatten(1).sum(1).gt(0).to(kInt64); }

struct Result {
  std::vector<std::vector<float>> numbers;
  std::map<std::string, std::vector<double>> history;
};

void expect_equal(const Result& got, const Result& expected) {
  for (const auto& [name, values] : expected.history) {
    const std::vector<double>& mine = got.history.at(name);
    ASSERT_EQ(mine.size(), values.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(mine[i], values[i])
          << name << " of epoch " << i << ": difference " << mine[i] - values[i];
    }
  }
  ASSERT_EQ(got.numbers.size(), expected.numbers.size());
  for (std::size_t v = 0; v < got.numbers.size(); ++v) {
    std::size_t different = 0;
    double most = 0;
    for (std::size_t i = 0; i < got.numbers[v].size(); ++i) {
      const double difference = got.numbers[v][i] - expected.numbers[v][i];
      if (difference == 0) continue;
      ++different;
      most = std::fmax(most, std::fabs(difference));
    }
    EXPECT_EQ(different, 0U) << "variable " << v << ": of " << got.numbers[v].size()
                             << " numbers so many differ, by up to " << most;
  }
}

enum class How { kByHand, kCaptured };

CompileOptions compiled(Optimizer optimizer, How how) {
  return {.optimizer = std::move(optimizer),
          .loss = SparseCategoricalCrossentropy({.from_logits = true}),
          .metrics = {"accuracy"},
          .jit_compile = how == How::kCaptured ? std::optional<bool>(true) : std::nullopt,
          .run_eagerly = how == How::kByHand};
}

class GpuCapture : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    at::globalContext().setDeterministicCuDNN(true);
    ASSERT_NE(runtime::find_step_recorder("GPU:0"), nullptr);
  }
  void TearDown() override { at::globalContext().setDeterministicCuDNN(false); }

  static Result result_of(const Sequential& model, const History& history) {
    Result out{.numbers = {}, .history = history.history};
    const auto add = [&](const auto& variables) {
      for (const Variable& v : variables) {
        out.numbers.push_back(to_vector<float>(v.value().to(at::kCPU, kFloat32)));
      }
    };
    add(model.variables());
    add(model.optimizer().variables());
    out.numbers.push_back(
        to_vector<float>(model.optimizer().iterations().value().to(at::kCPU, kFloat32)));
    return out;
  }

  // 5 steps an epoch: of 16 rows, the last of 8.
  Result train(const std::function<std::vector<Layer>()>& layers, const Tensor& x,
               const std::function<Optimizer()>& optimizer, How how,
               const std::vector<Callback>& callbacks = {}) {
    set_seed(7);
    const OneDeviceStrategy strategy("GPU:0");
    const Scope scope = strategy.scope();
    Sequential model(layers());
    model.compile(compiled(optimizer(), how));
    const History history = model.fit(x, classes(x),
                                      {.epochs = 10,
                                       .batch_size = 16,
                                       .callbacks = callbacks,
                                       .verbose = Verbose::kSilent,
                                       .shuffle = false});
    return result_of(model, history);
  }

  void expect_same(const std::function<std::vector<Layer>()>& layers, const Tensor& x,
                   const std::function<Optimizer()>& optimizer) {
    const Result by_hand = train(layers, x, optimizer, How::kByHand);
    expect_equal(train(layers, x, optimizer, How::kCaptured), by_hand);
  }

  static std::vector<Layer> perceptron() {
    return {Dense(32, {.activation = "relu"}), BatchNormalization(), Dropout(0.3),
            Dense(16, {.activation = "tanh"}), Dense(2)};
  }
};

TEST_F(GpuCapture, HasTheNumbersOfStepsByHand) {
  const LearningRate decay = CosineDecay(0.05, 45);
  const std::map<std::string, std::function<Optimizer()>> optimizers = {
      {"sgd", [&] { return SGD({.learning_rate = decay, .momentum = 0.9}); }},
      {"adam", [&] { return Adam({.learning_rate = decay}); }},
      {"adamw", [&] { return AdamW({.learning_rate = decay, .weight_decay = 0.1}); }},
      {"nadam", [] { return Nadam(); }}};
  for (const auto& [name, optimizer] : optimizers) {
    SCOPED_TRACE(name);
    expect_same(perceptron, waves(72, 20), optimizer);
  }
}

TEST_F(GpuCapture, HasThemForImages) {
  const auto layers = [] {
    return std::vector<Layer>{Conv2D(8, 3, {.padding = "same"}),
                              BatchNormalization(),
                              Activation("relu"),
                              MaxPooling2D(2),
                              Conv2D(8, 3),
                              GlobalAveragePooling2D(),
                              Dropout(0.2),
                              Dense(2)};
  };
  expect_same(layers, waves(72, 12 * 12 * 3).view({72, 12, 12, 3}), [] { return Adam(); });
}

TEST_F(GpuCapture, SeesWhatCallbacksSet) {
  const auto train_so = [&](How how) {
    const auto rate = LearningRateScheduler([](int epoch, double) { return 0.01 / (1 + epoch); });
    struct Halve : CallbackBase {
      void on_epoch_end(int, Logs&) override {
        for (const Variable& v : model().variables()) v.assign(v.value() * 0.5);
      }
    };
    return train(perceptron, waves(72, 20), [] { return Adam(); }, how,
                 {rate, std::make_shared<Halve>()});
  };
  const Result by_hand = train_so(How::kByHand);
  expect_equal(train_so(How::kCaptured), by_hand);
}

// The loss of every step, as its code returned it.
struct Logging : Sequential {
  using Sequential::Sequential;
  Logs train_step(const Element& batch) override {
    GradientTape tape;
    const Tensor y_pred = (*this)(batch[0].tensor(), {.training = true});
    const Tensor loss = compute_loss(batch[0].tensor(), batch[1].tensor(), y_pred);
    optimizer().minimize(loss, trainable_variables(), tape);
    return {{"own", loss}};
  }
};

// Keeps a log of each step.
struct Keep : CallbackBase {
  std::vector<Tensor> losses;
  void on_train_batch_end(int64_t, Logs& logs) override { losses.push_back(logs.value("own")); }
};

TEST_F(GpuCapture, GivesCopiesOfWhatStepsReturn) {
  const auto losses = [&](How how) {
    set_seed(3);
    const OneDeviceStrategy strategy("GPU:0");
    const Scope scope = strategy.scope();
    Logging model(perceptron());
    CompileOptions options = compiled(Adam({.learning_rate = 0.02}), how);
    options.metrics = OutputMetrics();
    model.compile(std::move(options));
    const auto kept = std::make_shared<Keep>();
    const Tensor x = waves(64, 20);
    model.fit(x, classes(x),
              {.epochs = 5,
               .batch_size = 16,
               .callbacks = {kept},
               .verbose = Verbose::kSilent,
               .shuffle = false});
    std::vector<double> out;
    for (const Tensor& loss : kept->losses) out.push_back(loss.item<double>());
    return out;
  };
  const std::vector<double> by_hand = losses(How::kByHand);
  ASSERT_EQ(by_hand.size(), 20U);
  EXPECT_EQ(losses(How::kCaptured), by_hand);
}

struct ReadsTheHost : LayerBase {
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    return x.max().item<double>() > 0 ? x * 1.5 : x;
  }
};

TEST_F(GpuCapture, IsNotMadeWhereALayerReadsOnTheHost) {
  const auto layers = [] {
    return std::vector<Layer>{Dense(8), std::make_shared<ReadsTheHost>(), Dropout(0.3), Dense(2)};
  };
  const Tensor x = waves(72, 20);
  const auto adam = [] { return Adam(); };
  const Result by_hand = train(layers, x, adam, How::kByHand);
  testing::expect_error<FailedPrecondition>({"jit_compile"},
                                            [&] { train(layers, x, adam, How::kCaptured); });
  // The device is as before: captured and other steps go on.
  expect_equal(train(layers, x, adam, How::kByHand), by_hand);
  expect_same(perceptron, x, adam);
  const Tensor sum = ones({1000}).to(runtime::device_backend("GPU:0").place("GPU:0"));
  EXPECT_EQ(sum.sum().item<double>(), 1000);
}

TEST_F(GpuCapture, CostsLessThanStepsByHand) {
  const OneDeviceStrategy strategy("GPU:0");
  const Scope scope = strategy.scope();
  const Tensor x = waves(32 * 50, 784);
  double microseconds[2] = {};
  for (const How how : {How::kByHand, How::kCaptured}) {
    set_seed(1);
    Sequential model({Dense(128, {.activation = "relu"}), Dropout(0.2), Dense(10)});
    model.compile(compiled(Adam(), how));
    const FitOptions epoch{.batch_size = 32, .verbose = Verbose::kSilent, .shuffle = false};
    model.fit(x, classes(x), epoch);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 4; ++i) model.fit(x, classes(x), epoch);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    microseconds[static_cast<int>(how)] = took.count() / 200;
  }
  std::printf("MLP of 32 rows, fit: %.1f us a step by hand, %.1f us captured\n", microseconds[0],
              microseconds[1]);
  RecordProperty("by_hand_us", std::to_string(microseconds[0]));
  RecordProperty("captured_us", std::to_string(microseconds[1]));
}

}  // namespace
}  // namespace cohort::gpu_tests
