// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of models, layers, optimizers and metrics, made before and after they are built.
#include "cohort/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using testing::expect_error;
using testing::shard_of;
using testing::strategy_of;

constexpr int64_t kInputs = 6;
constexpr int64_t kRows = 8;

class KerasCheckpoint : public testing::FolderTest {
 protected:
  std::vector<std::string> saved_names(const std::string& name) const {
    std::vector<std::string> out;
    for (const auto& [key, tensor] : load_tensors(shard_of(path(name))).tensors) {
      out.push_back(key);
    }
    return out;
  }
};

Tensor inputs() { return random_normal({kRows, kInputs}); }

using MakeOptimizer = std::function<Optimizer()>;

/// A model that is built by its first step.
struct Training {
  Training(int replicas, uint64_t seed, const MakeOptimizer& make, std::vector<Layer> layers)
      : strategy(strategy_of(replicas)) {
    set_seed(seed);
    const auto scope = strategy.scope();
    model = std::make_unique<Sequential>(std::move(layers));
    optimizer = make();
  }
  Checkpoint checkpoint() const {
    return Checkpoint({{"model", *model}, {"optimizer", optimizer}});
  }
  void step(const Tensor& x) const {
    auto it = strategy.distribute_dataset(Dataset::from_tensors(x)).make_iterator();
    strategy.run(
        [&](const Tensor& part) {
          GradientTape tape;
          const Tensor loss = (*model)(part, {.training = true}).square().sum() / kRows;
          optimizer.apply_gradients(tape.gradient(loss, model->trainable_variables()));
        },
        it.get_next());
  }
  std::vector<Tensor> weights() const { return model->get_weights(); }

  Strategy strategy;
  std::unique_ptr<Sequential> model;
  Optimizer optimizer;
};

std::vector<Layer> layers() {
  return {Dense(4, {.activation = "relu"}), BatchNormalization(), Dropout(0.4), Dense(3)};
}

bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return true;
}

std::vector<Tensor> data(int steps) {
  set_seed(99);
  std::vector<Tensor> out;
  for (int i = 0; i < steps; ++i) out.push_back(inputs());
  return out;
}

// Two steps, a checkpoint, two more: the same bits from fresh objects, restored before or after
// they are built.
void expect_resumes(const std::string& file, int replicas, const MakeOptimizer& make,
                    bool same_bits = true) {
  const std::vector<Tensor> x = data(4);
  const Training whole(replicas, 1, make, layers());
  whole.step(x[0]);
  whole.step(x[1]);
  whole.checkpoint().save(file);
  whole.step(x[2]);
  whole.step(x[3]);
  for (const bool built : {false, true}) {
    const Training other(replicas, 2, make, layers());
    if (built) other.step(x[0]);
    const RestoreStatus status = other.checkpoint().restore(file);
    if (built) status.assert_consumed();
    other.step(x[2]);
    status.assert_consumed();
    other.step(x[3]);
    const auto a = other.model->variables(), b = whole.model->variables();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      // A mean over replicas that is put into each of them rounds.
      const bool exact = same_bits && (replicas == 1 || a[i].trainable());
      EXPECT_TRUE(exact ? a[i].value().equal(b[i].value())
                        : a[i].value().allclose(b[i].value(), 1e-5, 1e-6))
          << whole.optimizer.name() << ", " << replicas << " replicas, built: " << built << ", "
          << a[i].name();
    }
    EXPECT_EQ(other.optimizer.iterations().value().item<int64_t>(),
              whole.optimizer.iterations().value().item<int64_t>());
  }
}

TEST_F(KerasCheckpoint, EveryOptimizerGoesOnWithTheSameBits) {
  const std::vector<MakeOptimizer> all = {
      [] { return SGD({.momentum = 0.9}); },
      [] { return Adam({.amsgrad = true}); },
      [] { return Adam({.use_ema = true, .ema_overwrite_frequency = 3}); },
      [] { return Optimizer("adamw"); },
      [] { return Optimizer("rmsprop"); },
      [] { return Optimizer("adagrad"); },
      [] { return Optimizer("adadelta"); },
      [] { return Optimizer("adamax"); },
      [] { return Optimizer("nadam"); },
      [] { return Optimizer("ftrl"); },
      [] { return Optimizer("lion"); },
      [] { return Adam({.learning_rate = ExponentialDecay(0.1, 1, 0.5)}); },
  };
  for (const MakeOptimizer& make : all) expect_resumes(path("x"), 1, make);
  expect_resumes(path("x"), 2, all[1]);
  expect_resumes(path("x"), 2, all[2]);
}

TEST_F(KerasCheckpoint, AccumulatedGradientsAreKept) {
  // Three steps are one and a half updates.
  expect_resumes(path("x"), 1, [] { return Adam({.gradient_accumulation_steps = 3}); });
  // What each replica has summed comes back as one sum.
  expect_resumes(
      path("x"), 2, [] { return SGD({.gradient_accumulation_steps = 3}); }, false);
}

struct Signs : OptimizerBase {
  Signs() : OptimizerBase(0.1, "signs") {}
  void on_build(std::span<const Variable> variables) override {
    for (const Variable& v : variables) counts.push_back(add_slot(v, "count"));
  }
  void update(const Variable& w, const Gradient& g) override {
    const Variable count =
        counts[index_of(w)].components()[static_cast<std::size_t>(std::max(0, current_replica()))];
    count.assign_add(1.0);
    w.assign_sub(g.as_tensor().sign() * learning_rate() / count.value());
  }
  std::vector<Variable> counts;
};

TEST_F(KerasCheckpoint, OwnOptimizersKeepTheirSlots) {
  const MakeOptimizer make = [] { return Optimizer(std::make_shared<Signs>()); };
  expect_resumes(path("x"), 1, make);
  expect_resumes(path("x"), 2, make);
}

TEST_F(KerasCheckpoint, NamesDoNotDependOnWhatElseIsInTheProcess) {
  const Training training(1, 1, [] { return Adam(); },
                          {Dense(4), Dense(3), Dense(2, {.name = "out"})});
  training.step(inputs());
  training.checkpoint().save(path("x"));
  const std::vector<std::string> names = saved_names("x");
  const std::vector<std::string> expected = {"model/dense/bias",
                                             "model/dense/kernel",
                                             "model/dense_1/bias",
                                             "model/dense_1/kernel",
                                             "model/out/bias",
                                             "model/out/kernel",
                                             "optimizer/iteration",
                                             "optimizer/learning_rate",
                                             "optimizer/model/dense/bias/momentum",
                                             "optimizer/model/dense/bias/velocity",
                                             "optimizer/model/dense/kernel/momentum",
                                             "optimizer/model/dense/kernel/velocity",
                                             "optimizer/model/dense_1/bias/momentum",
                                             "optimizer/model/dense_1/bias/velocity",
                                             "optimizer/model/dense_1/kernel/momentum",
                                             "optimizer/model/dense_1/kernel/velocity",
                                             "optimizer/model/out/bias/momentum",
                                             "optimizer/model/out/bias/velocity",
                                             "optimizer/model/out/kernel/momentum",
                                             "optimizer/model/out/kernel/velocity"};
  EXPECT_EQ(names, expected);
  Checkpoint({{"optimizer", training.optimizer}}).save(path("y"));
  EXPECT_EQ(saved_names("y")[2], "optimizer/variable_0/momentum");
}

TEST_F(KerasCheckpoint, TravelsBetweenNumbersOfReplicas) {
  const std::vector<Tensor> x = data(3);
  const auto dense = [] { return std::vector<Layer>{Dense(4, {.activation = "tanh"}), Dense(3)}; };
  const MakeOptimizer make = [] { return Adam({.learning_rate = 0.1}); };
  const Training one(1, 1, make, dense());
  const Training two(2, 2, make, dense());
  one.step(x[0]);
  one.checkpoint().save(path("one"));
  two.checkpoint().restore(path("one"));
  two.step(x[1]);
  one.step(x[1]);
  for (std::size_t i = 0; i < one.weights().size(); ++i) {
    EXPECT_TRUE(one.weights()[i].allclose(two.weights()[i], 1e-4, 1e-6)) << i;
  }
  two.checkpoint().save(path("two"));
  one.checkpoint().restore(path("two")).assert_consumed();
  EXPECT_TRUE(equal(one.weights(), two.weights()));
}

TEST_F(KerasCheckpoint, AModelThatIsAnotherIsRefusedWhenItIsBuilt) {
  {
    Sequential model({Dense(4), Dense(3)});
    model(inputs());
    Checkpoint({{"model", model}}).save(path("x"));
  }
  Sequential other({Dense(4), Dense(2)});
  Checkpoint({{"model", other}}).restore(path("x"));
  for (int i = 0; i < 2; ++i) {
    expect_error<InvalidArgument>(
        {"model/dense_1/kernel: expected float32[4, 2], got float32[4, 3] in the checkpoint",
         "model/dense_1/bias: expected float32[2], got float32[3]", path("x")},
        [&] { other(inputs()); });
  }
  Sequential fewer({Dense(4)});
  expect_error<InvalidArgument>({"model/dense_1/bias: float32[3] in the checkpoint, not in the"},
                                [&] {
                                  Checkpoint({{"model", fewer}}).restore(path("x"));
                                  fewer(inputs());
                                });
  Sequential more({Dense(4), Dense(3), Dense(3)});
  Checkpoint({{"model", more}}).restore(path("x"));
  expect_error<InvalidArgument>({"model/dense_2/kernel: float32[3, 3] in the program, not in the"},
                                [&] { more(inputs()); });
  EXPECT_NO_THROW(Checkpoint({{"model", more}}).restore(path("x"), {.allow_partial = true}));
}

struct Shared : Model {
  Dense hidden = add("hidden", Dense(kInputs));
  Dense again = add("again", hidden);
  Tensor call(const Tensor& x, const CallArgs& args) override {
    return again(hidden(x, args), args);
  }
};

TEST_F(KerasCheckpoint, SharedLayersAreKeptOnce) {
  Shared model;
  const Tensor x = inputs();
  const Tensor y = model(x);
  Checkpoint({{"model", model}}).save(path("x"));
  EXPECT_EQ(saved_names("x").size(), 2u);
  Shared other;
  Checkpoint({{"model", other}}).restore(path("x"));
  EXPECT_TRUE(other(x).equal(y));
}

TEST_F(KerasCheckpoint, ACompiledModelBringsItsOptimizer) {
  const auto make = [] {
    auto model = std::make_unique<Sequential>(std::vector<Layer>{Dense(4), Dense(1)});
    model->compile({.optimizer = Adam(), .loss = MeanSquaredError()});
    return model;
  };
  const Tensor x = inputs(), y = inputs().slice(1, 0, 1);
  const auto whole = make();
  whole->fit(x, y, {.batch_size = 4, .verbose = Verbose::kSilent, .shuffle = false});
  Checkpoint({{"model", *whole}}).save(path("x"));
  const auto other = make();
  const RestoreStatus status = Checkpoint({{"model", *other}}).restore(path("x"));
  for (const auto& model : {whole.get(), other.get()}) {
    model->fit(x, y, {.batch_size = 4, .verbose = Verbose::kSilent, .shuffle = false});
  }
  status.assert_consumed();
  EXPECT_TRUE(equal(other->get_weights(), whole->get_weights()));
  // For use alone, the optimizer may be left out.
  Sequential use({Dense(4), Dense(1)});
  use(x);
  EXPECT_THROW(Checkpoint({{"model", use}}).restore(path("x")), InvalidArgument);
  Checkpoint({{"model", use}}).restore(path("x"), {.allow_partial = true});
}

TEST_F(KerasCheckpoint, MetricsTravelBetweenNumbersOfReplicas) {
  const Strategy two = strategy_of(2);
  Metric metric = [&] {
    const auto scope = two.scope();
    return SparseCategoricalAccuracy();
  }();
  two.run([&] {
    metric.update_state(tensor({0, 1}, kInt64), from_vector<float>({1, 0, 1, 0}, {2, 2}));
  });
  Checkpoint({{"metric", metric}}).save(path("x"));
  EXPECT_EQ(saved_names("x"), (std::vector<std::string>{"metric/count", "metric/total"}));
  const Metric one = SparseCategoricalAccuracy();
  Checkpoint({{"metric", one}}).restore(path("x"));
  EXPECT_EQ(one.result().item<double>(), 0.5);
  EXPECT_THROW(Checkpoint({{"metric", Metric("accuracy")}}), FailedPrecondition);
}

TEST_F(KerasCheckpoint, TheLearningRateIsState) {
  const Variable w(ones({2}), {.name = "w"});
  const Optimizer optimizer = SGD({.learning_rate = 0.5});
  optimizer.build(std::vector<Variable>{w});
  optimizer.set_learning_rate(0.125);
  Checkpoint({{"w", w}, {"optimizer", optimizer}}).save(path("x"));
  const Optimizer other = SGD({.learning_rate = 0.5});
  Checkpoint({{"w", w}, {"optimizer", other}}).restore(path("x"));
  EXPECT_EQ(other.learning_rate(), 0.125);  // Before it is built.
}

TEST_F(KerasCheckpoint, TheCountOfUpdatesIsKnownBeforeAnOptimizerIsBuilt) {
  for (const int every : {1, 2}) {
    const auto make = [&](int replicas) {
      return Training(replicas, 1,
                      [&] {
                        return Adam({.learning_rate = [](int64_t step) { return 1.0 / (1 + step); },
                                     .gradient_accumulation_steps = every});
                      },
                      {Dense(2)});
    };
    const Training whole = make(1);
    EXPECT_EQ(whole.optimizer.iterations().value().item<int64_t>(), 0);
    for (int i = 0; i < 4; ++i) whole.step(inputs());
    whole.checkpoint().save(path("x"));
    for (const int replicas : {1, 2}) {
      const Training other = make(replicas);
      const Variable iterations = other.optimizer.iterations();
      EXPECT_EQ(iterations.value().item<int64_t>(), 0);
      other.checkpoint().restore(path("x"));
      EXPECT_EQ(iterations.value().item<int64_t>(), 4 / every);
      EXPECT_EQ(other.optimizer.iterations().value().item<int64_t>(), 4 / every);
      EXPECT_EQ(other.optimizer.learning_rate(), whole.optimizer.learning_rate());
      other.step(inputs());
      EXPECT_EQ(iterations.value().item<int64_t>(), 5 / every);
      EXPECT_EQ(other.optimizer.iterations().value().item<int64_t>(), 5 / every);
    }
  }
}

TEST_F(KerasCheckpoint, ModelsAndOptimizersMayEndBeforeACheckpoint) {
  auto model = std::make_unique<Sequential>(std::vector<Layer>{Dense(2)});
  const Checkpoint checkpoint({{"model", *model}});
  (*model)(inputs());
  checkpoint.save(path("x"));
  model = std::make_unique<Sequential>(std::vector<Layer>{Dense(2)});
  EXPECT_THROW(checkpoint.save(path("x")), FailedPrecondition);
  // A restore that never comes to its end holds nothing.
  Checkpoint({{"model", *model}}).restore(path("x"));
  model.reset();
}

TEST_F(KerasCheckpoint, DamagedFilesOfWeightsAreNotLoaded) {
  const std::string file = path("x.safetensors");
  Sequential model({InputLayer({kInputs}), Dense(3, {.name = "a"})});
  model.save_weights(file);
  const std::string good = testing::bytes_of(file);
  const std::vector<Tensor> zero = {zeros({kInputs, 3}), zeros({3})};
  model.set_weights(zero);
  const std::size_t data = good.size() - 4 * (3 * kInputs + 3);
  for (std::size_t i = data; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    testing::write_bytes(file, bad);
    EXPECT_THROW(model.load_weights(file), DataLoss) << "byte " << i;
  }
  for (const Tensor& weight : model.get_weights()) EXPECT_TRUE(weight.eq(0).all().item<bool>());
  testing::write_bytes(file, good);
  model.load_weights(file);
  EXPECT_GT(model.get_weights()[0].abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace cohort::keras
