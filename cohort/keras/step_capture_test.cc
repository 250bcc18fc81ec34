// SPDX-License-Identifier: Apache-2.0
//
// Training by recorded steps is, to the bit, training by hand: what changes from step to step, what
// is refused, and what a recording that fails leaves behind. The recorder here is a CPU's: it calls
// the step's code anew in each start, which then finds all that changes in the block of values.
#include "cohort/keras/step_capture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras {
namespace {

namespace runtime = cohort::internal::runtime;
using testing::expect_error;

class FakeRecorder final : public runtime::StepRecorder {
 public:
  FakeRecorder() : before_(runtime::exchange_step_recorder(c10::kCPU, this)) {}
  ~FakeRecorder() override { runtime::exchange_step_recorder(c10::kCPU, before_); }

  const Model* model = nullptr;  // whose weights a recording leaves alone
  bool fails = false;
  int recorded = 0, started = 0;

  std::shared_ptr<runtime::RecordingMemory> make_memory(const Device&) override {
    return std::make_shared<Memory>();
  }

  std::unique_ptr<runtime::RecordedStep> record(const Device&,
                                                std::shared_ptr<runtime::RecordingMemory>,
                                                std::byte* block,
                                                const std::function<void()>& body) override {
    ++recorded;
    std::vector<std::pair<Variable, Tensor>> state;
    const auto keep = [&](const auto& variables) {
      for (const Variable& v : variables) state.emplace_back(v, v.value().clone());
    };
    keep(model->variables());
    keep(model->optimizer().variables());
    const auto restore = [&] {
      const at::NoGradGuard no_grad;
      cohort::internal::variables::StepUndo::current()->roll_back();
      for (const auto& [variable, value] : state) variable.assign(value);
    };
    try {
      body();
    } catch (...) {
      restore();
      throw;
    }
    restore();
    if (fails) throw std::runtime_error("operation not permitted when stream is capturing");
    return std::make_unique<Again>(*this, block, body);
  }

 private:
  struct Memory final : runtime::RecordingMemory {};
  struct Again final : runtime::RecordedStep {
    Again(FakeRecorder& of, std::byte* to, std::function<void()> code)
        : recorder(of), block(to), body(std::move(code)) {}
    void start(std::span<const std::byte> values) override {
      ++recorder.started;
      std::memcpy(block, values.data(), values.size());
      body();
    }
    FakeRecorder& recorder;
    std::byte* const block;
    const std::function<void()> body;
  };
  runtime::StepRecorder* const before_;
};

Tensor waves(int64_t rows) { return (arange(rows * 4, kFloat32).view({rows, 4}) * 0.37).sin() * 3; }

struct Trained {
  std::vector<std::vector<float>> numbers;  // weights, slots and all
  std::map<std::string, std::vector<double>> history;
  friend bool operator==(const Trained&, const Trained&) = default;
};

struct Recipe {
  std::function<Optimizer()> optimizer = [] { return Adam(); };
  std::vector<Layer> layers = {};  // in the middle
  OutputLosses loss = "mse";
  std::vector<Callback> callbacks = {};
  std::optional<bool> jit_compile = {};
  int steps_per_execution = 1;
  int64_t rows = 20, batch = 8;  // 8, 8, 4
  int epochs = 5;
};

class RecordedSteps : public ::testing::Test {
 protected:
  // `make`: layers count operations from the seed on, and are one model's.
  Trained train(const std::function<Recipe()>& make, bool run_eagerly,
                const std::function<void(Sequential&)>& then = {}) {
    set_seed(7);
    const Recipe recipe = make();
    std::vector<Layer> layers = {Dense(8, {.activation = "tanh"})};
    layers.insert(layers.end(), recipe.layers.begin(), recipe.layers.end());
    layers.emplace_back(Dense(1));
    Sequential model(layers);
    model.compile({.optimizer = recipe.optimizer(),
                   .loss = recipe.loss,
                   .metrics = {"mae"},
                   .steps_per_execution = recipe.steps_per_execution,
                   .jit_compile = recipe.jit_compile,
                   .run_eagerly = run_eagerly});
    recorder.model = &model;
    const Tensor x = waves(recipe.rows);
    const History history = model.fit(x, x.sum(1, true),
                                      {.epochs = recipe.epochs,
                                       .batch_size = recipe.batch,
                                       .callbacks = recipe.callbacks,
                                       .verbose = Verbose::kSilent,
                                       .shuffle = false});
    if (then) then(model);
    Trained out{.numbers = {}, .history = history.history};
    const auto add = [&](const auto& variables) {
      for (const Variable& v : variables) {
        out.numbers.push_back(to_vector<float>(v.value().to(kFloat32)));
      }
    };
    add(model.variables());
    add(model.optimizer().variables());
    out.numbers.push_back(to_vector<float>(model.optimizer().iterations().value().to(kFloat32)));
    return out;
  }

  void expect_same(const std::function<Recipe()>& make, int recorded, int started,
                   const char* what) {
    SCOPED_TRACE(what);
    const Trained by_hand = train(make, true);
    EXPECT_EQ(recorder.recorded, 0);
    const Trained by_starts = train(make, false);
    EXPECT_EQ(by_starts.history, by_hand.history);
    EXPECT_EQ(by_starts.numbers, by_hand.numbers);
    EXPECT_EQ(recorder.recorded, recorded);
    EXPECT_EQ(recorder.started, started);
    recorder.recorded = recorder.started = 0;
  }

  FakeRecorder recorder;
};

// Of 15 steps three of the first shape and one of the second are made by hand.
TEST_F(RecordedSteps, HaveTheNumbersOfStepsByHand) {
  const LearningRate decay = CosineDecay(0.05, 12);
  const std::vector<std::pair<const char*, std::function<Optimizer()>>> optimizers = {
      {"sgd", [&] { return SGD({.learning_rate = decay}); }},
      {"momentum", [] { return SGD({.learning_rate = 0.02, .momentum = 0.9}); }},
      {"adam", [&] { return Adam({.learning_rate = decay}); }},
      {"adamw", [&] { return AdamW({.learning_rate = decay, .weight_decay = 0.1}); }},
      {"nadam", [] { return Nadam(); }},
      {"clipvalue", [] { return Adam({.clipvalue = 0.01}); }},
      {"rmsprop", [] { return RMSprop(); }}};
  for (const auto& one : optimizers) {
    const auto& name = one.first;
    const auto& optimizer = one.second;
    expect_same(
        [&] {
          return Recipe{
              .optimizer = optimizer,
              .layers = {BatchNormalization({.momentum = 0.5}), Dropout(0.4), GaussianNoise(0.1)}};
        },
        2, 11, name);
  }
}

TEST_F(RecordedSteps, AreMadeSeveralInOneExecution) {
  expect_same([] { return Recipe{.layers = {Dropout(0.4)}, .steps_per_execution = 2}; }, 2, 11,
              "steps_per_execution");
}

TEST_F(RecordedSteps, KeepConstraintsAndPenalties) {
  const auto recipe = [] {
    return Recipe{.layers = {Dense(6, {.kernel_regularizer = L2(0.01),
                                       .activity_regularizer = L2(0.01),
                                       .kernel_constraint = MaxNorm(0.7)})}};
  };
  expect_same(recipe, 2, 11, "constraint");
}

// What callbacks set on the host is what later starts compute with.
TEST_F(RecordedSteps, SeeWhatCallbacksSet) {
  const auto recipe = [] {
    const auto rate = LearningRateScheduler([](int epoch, double) { return 0.01 / (1 + epoch); });
    struct Halve : CallbackBase {
      void on_epoch_end(int, Logs&) override {
        for (const Variable& v : model().variables()) v.assign(v.value() * 0.5);
      }
    };
    return Recipe{.layers = {Dropout(0.2)}, .callbacks = {rate, std::make_shared<Halve>()}};
  };
  expect_same(recipe, 2, 11, "callbacks");
}

TEST_F(RecordedSteps, BeginAnewWhenLayersChange) {
  const auto recipe = [] {
    struct Freeze : CallbackBase {
      void on_epoch_end(int epoch, Logs&) override {
        if (epoch == 2) model().layers()[0].base().set_trainable(false);
      }
    };
    return Recipe{.callbacks = {std::make_shared<Freeze>()}, .epochs = 8};
  };
  // Epochs of 3 steps: by hand 2 + 1, 1, then starts; after the third one three and one again.
  expect_same(recipe, 4, 24 - 8, "frozen");
}

struct Own : LayerBase {
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override { return x * 1.5; }
};

TEST_F(RecordedSteps, AreMadeByHandWhereTheyCannotBeRecorded) {
  const std::vector<std::pair<const char*, std::function<Recipe()>>> recipes = {
      {"own layer", [] { return Recipe{.layers = {std::make_shared<Own>()}}; }},
      {"own loss",
       [] {
         return Recipe{.loss = Loss([](const Tensor& y, const Tensor& p) {
                         return (y - p).square().mean(-1);
                       })};
       }},
      {"never", [] { return Recipe{.jit_compile = false}; }}};
  for (const auto& [name, recipe] : recipes) expect_same(recipe, 0, 0, name);
  // What only the step's code says.
  const std::vector<std::pair<const char*, std::function<Optimizer()>>> optimizers = {
      {"norm", [] { return Adam({.clipnorm = 0.1}); }},
      {"global norm", [] { return Adam({.global_clipnorm = 0.1}); }},
      {"averages", [] { return Adam({.use_ema = true}); }},
      {"accumulation", [] { return Adam({.gradient_accumulation_steps = 2}); }},
      {"scaled", [] { return LossScaleOptimizer(Adam()); }},
      {"whole variables", [] { return Lamb(); }}};
  for (const auto& one : optimizers) {
    const auto& name = one.first;
    const auto& optimizer = one.second;
    expect_same(
        [&] {
          return Recipe{.optimizer = optimizer, .layers = {BatchNormalization(), Dropout(0.3)}};
        },
        1, 0, name);
  }
}

TEST_F(RecordedSteps, ThatFailToBeRecordedChangeNothing) {
  recorder.fails = true;
  expect_same([] { return Recipe{.layers = {BatchNormalization(), Dropout(0.3)}}; }, 1, 0, "fails");
}

TEST_F(RecordedSteps, AreAnErrorWhereTheyAreDemandedAndCannotBe) {
  expect_error<FailedPrecondition>({"jit_compile", "clips by norms"}, [&] {
    const auto clipped = [] { return Adam({.clipnorm = 0.1}); };
    train([&] { return Recipe{.optimizer = clipped, .jit_compile = true}; }, false);
  });
  recorder.fails = true;
  const auto demanded = [] { return Recipe{.jit_compile = true}; };
  expect_error<FailedPrecondition>({"jit_compile", "capturing"}, [&] { train(demanded, false); });
  const Strategy two = testing::strategy_of(2);
  const Scope scope = two.scope();
  expect_error<FailedPrecondition>({"jit_compile", "several replicas"},
                                   [&] { train(demanded, false); });
}

TEST_F(RecordedSteps, OfClassesOfTheProgramAreRecordedOnDemand) {
  const auto recipe = [] {
    return Recipe{.layers = {std::make_shared<Own>(), Dropout(0.3)}, .jit_compile = true};
  };
  expect_same(recipe, 2, 11, "own layer");
}

TEST_F(RecordedSteps, AreNotMadeOfSeveralReplicas) {
  const Strategy two = testing::strategy_of(2);
  const Scope scope = two.scope();
  expect_same([] { return Recipe{.layers = {Dropout(0.3)}}; }, 0, 0, "two replicas");
}

// A schedule that throws ends the step ahead of its start, with nothing changed.
TEST_F(RecordedSteps, EndBeforeTheyStartWhereANumberCannotBe) {
  const auto numbers = [&](bool by_hand) {
    const LearningRate rate([](int64_t step) { return step == 9 ? std::nan("") : 0.01; });
    const auto recipe = [&] {
      return Recipe{.optimizer = [&] { return Adam({.learning_rate = rate}); },
                    .layers = {Dropout(0.4), BatchNormalization()},
                    .jit_compile = true,
                    .epochs = 3};
    };
    return train(recipe, by_hand, [&](Sequential& model) {
      for (int again = 0; again < 2; ++again) {
        const Tensor x = waves(8);
        expect_error<InvalidArgument>({"learning rate"},
                                      [&] { model.train_on_batch(x, x.sum(1, true)); });
      }
    });
  };
  EXPECT_EQ(numbers(false).numbers, numbers(true).numbers);
  EXPECT_EQ(recorder.started, 5);
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

TEST_F(RecordedSteps, GiveCopiesOfWhatTheyReturn) {
  const auto losses = [&](bool by_hand) {
    set_seed(3);
    Logging model({Dense(8, {.activation = "tanh"}), Dropout(0.3), Dense(1)});
    model.compile({.optimizer = Adam({.learning_rate = 0.05}),
                   .loss = "mse",
                   .jit_compile = true,
                   .run_eagerly = by_hand});
    recorder.model = &model;
    const Tensor x = waves(8);
    std::vector<Tensor> kept;
    for (int step = 0; step < 8; ++step) {
      kept.push_back(model.train_on_batch(x, x.sum(1, true)).value("own"));
    }
    std::vector<double> out;
    for (const Tensor& loss : kept) out.push_back(loss.item<double>());
    return out;
  };
  const std::vector<double> by_hand = losses(true);
  EXPECT_EQ(losses(false), by_hand);
  EXPECT_EQ(recorder.started, 5);
  EXPECT_NE(by_hand[6], by_hand[7]);
}

// A gradient that the program keeps is not where recordings write theirs.
TEST_F(RecordedSteps, LeaveKeptGradientsAlone) {
  Sequential model({Dense(8), Dense(1)});
  model.compile({.optimizer = Adam(), .loss = "mse", .jit_compile = true});
  recorder.model = &model;
  const Tensor x = waves(8);
  const auto train_some = [&] {
    for (int step = 0; step < 5; ++step) model.train_on_batch(x, x.sum(1, true));
  };
  train_some();
  ASSERT_EQ(recorder.started, 2);
  GradientTape tape;
  const Gradients kept = tape.gradient(model(x).square().sum(), model.trainable_variables());
  const std::vector<float> before = to_vector<float>(kept[0].gradient.dense());
  train_some();
  EXPECT_EQ(to_vector<float>(kept[0].gradient.dense()), before);
}

TEST_F(RecordedSteps, OfShapesThatComeAndGoAreGivenUp) {
  Sequential model({Dense(2), Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  recorder.model = &model;
  const auto train_on = [&](int64_t rows) {
    const Tensor x = waves(rows);
    model.train_on_batch(x, x.sum(1, true));
  };
  for (int again = 0; again < 4; ++again) train_on(4);
  EXPECT_EQ(recorder.recorded, 1);
  for (int round = 0; round < 3; ++round) {
    for (int64_t rows = 5; rows < 25; ++rows) {
      for (int again = 0; again < 3; ++again) train_on(rows);
    }
  }
  const int recorded = recorder.recorded;
  EXPECT_GT(recorded, 30);
  EXPECT_LT(recorded, 45);
  for (int again = 0; again < 5; ++again) train_on(30);
  EXPECT_EQ(recorder.recorded, recorded);
}

// The same recordings from one epoch to the next, and from one fit to the next.
TEST_F(RecordedSteps, LastAsLongAsTheCompiledModel) {
  const auto more = [&](Sequential& model) {
    const Tensor x = waves(16);
    for (int fit = 0; fit < 2; ++fit) {
      model.fit(x, x.sum(1, true), {.batch_size = 8, .verbose = Verbose::kSilent});
    }
  };
  train([] { return Recipe(); }, false, more);
  EXPECT_EQ(recorder.recorded, 2);
  EXPECT_EQ(recorder.started, 11 + 4);
}

}  // namespace
}  // namespace cohort::keras
