// SPDX-License-Identifier: Apache-2.0
//
// Losses, optimizers, metrics and fit: T01 to T31.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/loss_scaling.h"
#include "cohort/strategy/test_workers.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

constexpr keras::Verbose kSilent = keras::Verbose::kSilent;

// Its one weight, for every row.
class OneWeight : public keras::LayerBase {
 public:
  // A name of its own: workers that are threads count their layers together.
  explicit OneWeight(keras::Regularizer regularizer = {})
      : LayerBase("one_weight"), regularizer_(regularizer) {}
  void build(const Shape&) override {
    weight_ =
        add_weight({.name = "v", .shape = {}, .initializer = "ones", .regularizer = regularizer_});
  }
  Tensor call(const Tensor& x, const keras::CallArgs&) override { return x * 0 + weight_; }
  std::string class_name() const override { return "OneWeight"; }

 private:
  keras::Regularizer regularizer_;
  Variable weight_;
};

Dataset rows(int64_t count) {
  const Tensor x = arange(count, kFloat32).unsqueeze(1);
  return Dataset::from_tensor_slices({x, x});
}

// A compiled model of one weight whose loss is its output + 1.
struct OneWeightModel : keras::Sequential {
  explicit OneWeightModel(keras::CompileOptions options, keras::Regularizer regularizer = {})
      : Sequential({std::make_shared<OneWeight>(std::move(regularizer))}) {
    options.optimizer = keras::SGD({.learning_rate = 1});
    options.loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1) + 1; };
    compile(std::move(options));
  }
};

CONFORMANCE(T01_AverageLoss) {
  const Tensor losses = tensor({1, 2, 3, 4});
  const auto [given, own] = t.strategy.run([&] {
    return std::tuple(compute_average_loss(losses, {.global_batch_size = 8}),
                      compute_average_loss(losses));
  });
  return show(given, own);
}

CONFORMANCE(T03_RegularizationLoss) {
  return show(t.strategy.run([] { return scale_regularization_loss(tensor({3, 5})); }));
}

CONFORMANCE(T04_AverageLossCrossReplica) {
  const auto scope = t.strategy.scope();
  return show(outcome([] { return compute_average_loss(tensor({1, 2})); }));
}

// v = [0, 0] after a step at rate 0.1 with gradients of 1 on replica 0, 2 on replica 1.
Word after_step(const Trial& t, keras::ApplyOptions options) {
  const Variable v = t.variable(zeros({2}));
  const auto scope = t.strategy.scope();
  const keras::SGD optimizer({.learning_rate = 0.1});
  return outcome([&] {
    t.run([&](int id) {
      optimizer.apply_gradients(Gradients({{Gradient(full({2}, id + 1)), v}}), options);
    });
    return components(v);
  });
}

CONFORMANCE(T05_GradientsAreSummedUnlessToldOtherwise) {
  return show(after_step(t, {}), after_step(t, {.skip_gradients_aggregation = true}));
}

CONFORMANCE(T07_TransformedGradients) {
  const std::vector<Variable> both{t.variable(1.0), t.variable(-1.0)};
  const auto scope = t.strategy.scope();
  const keras::SGD optimizer({.learning_rate = 1});
  const Word stepped = outcome([&] {
    t.run([&](int) {
      GradientTape tape;
      Gradients gradients = tape.gradient(both[0] * 3 + both[1] * both[1], both);
      for (auto& [gradient, variable] : gradients) gradient = Gradient(ones(variable.shape()));
      optimizer.apply_gradients(gradients, {.skip_gradients_aggregation = true});
    });
  });
  return show(stepped, components(both[0]), components(both[1]));
}

CONFORMANCE(T09_FitAddsPenalties) {
  const auto scope = t.strategy.scope();
  OneWeightModel model({}, [](const Tensor& w) { return w * 1; });
  model.fit(rows(2).batch(2), {.verbose = kSilent});
  return show(model.get_weights()[0]);
}

CONFORMANCE(T10_ApplyGradientsCrossReplica) {
  const Variable v = t.variable(1.0);
  const auto scope = t.strategy.scope();
  const keras::SGD optimizer({.learning_rate = 1});
  return show(outcome([&] { optimizer.apply_gradients(Gradients({{Gradient(scalar(1)), v}})); }));
}

CONFORMANCE(T12_MeanOfADataset) {
  const auto scope = t.strategy.scope();
  const keras::Mean mean;
  for (const auto& batch : t.strategy.distribute_dataset(Dataset::range(10).batch(2))) {
    t.strategy.run([&](const Tensor& x) { mean.update_state(x.to(kFloat32)); }, batch);
  }
  return show(mean.result());
}

CONFORMANCE(T13_MeanAfterEachBatch) {
  const auto scope = t.strategy.scope();
  const keras::Mean mean;
  std::vector<Tensor> results;
  for (const auto& batch : t.strategy.distribute_dataset(Dataset::range(12).batch(4))) {
    t.strategy.run([&](const Tensor& x) { mean.update_state(x.to(kFloat32)); }, batch);
    results.push_back(mean.result().clone());
  }
  return show(results);
}

CONFORMANCE(T17_UnknownSizeAndSeveralStepsPerExecution) {
  const auto scope = t.strategy.scope();
  OneWeightModel model({.steps_per_execution = 20});
  const Dataset unknown =
      rows(8).filter([](const Tensor&, const Tensor&) { return true; }).batch(4);
  return show(outcome([&] { model.fit(unknown, {.verbose = kSilent}); }));
}

CONFORMANCE(T18_DistributedDataWithoutSteps) {
  const auto scope = t.strategy.scope();
  OneWeightModel model({});
  const auto data = t.strategy.distribute_dataset(rows(12).batch(4));
  return show(outcome([&] {
    model.fit(data, {.verbose = kSilent});
    return model.optimizer().iterations().value();
  }));
}

CONFORMANCE(T19_IterationsCountSteps) {
  const auto scope = t.strategy.scope();
  OneWeightModel model({});
  model.fit(rows(20).batch(2).repeat(), {.epochs = 10, .verbose = kSilent, .steps_per_epoch = 10});
  return show(model.optimizer().iterations().value());
}

struct Counter : keras::CallbackBase {
  int train = 0, test = 0, epochs = 0;
  void on_train_batch_end(int64_t, keras::Logs&) override { ++train; }
  void on_test_batch_end(int64_t, keras::Logs&) override { ++test; }
  void on_epoch_end(int, keras::Logs&) override { ++epochs; }
};

CONFORMANCE(T20_CallbacksAreCalled) {
  const auto scope = t.strategy.scope();
  OneWeightModel model({});
  const auto counter = std::make_shared<Counter>();
  model.fit(rows(20).batch(2).repeat(), {.epochs = 2,
                                         .validation_data = rows(20).batch(2).repeat(),
                                         .callbacks = {counter},
                                         .verbose = kSilent,
                                         .steps_per_epoch = 10,
                                         .validation_steps = 5});
  return show(counter->train, counter->test, counter->epochs);
}

CONFORMANCE(T24_PredictKeepsTheOrder) {
  const auto scope = t.strategy.scope();
  keras::Sequential model({keras::Dense(1, {.use_bias = false, .kernel_initializer = "ones"})});
  const Dataset x = Dataset::from_tensor_slices(arange(10, kFloat32).unsqueeze(1));
  return show(model.predict(x.batch(4), {.verbose = kSilent}).squeeze(-1));
}

/// Gone when it ends.
struct Folder {
  Folder() { path = ::mkdtemp(path.data()); }
  ~Folder() { std::filesystem::remove_all(path); }
  bool has(const std::string& name) const { return std::filesystem::exists(path + "/" + name); }
  std::string path = (std::filesystem::temp_directory_path() / "conformance_XXXXXX").string();
};

struct FailInEpoch2 : keras::CallbackBase {
  std::vector<int64_t> epochs;
  bool fails = true;
  void on_epoch_begin(int epoch) override {
    epochs.push_back(epoch);
    if (fails && epoch == 2) throw InvalidArgument("the fault of this test");
  }
};

// Fails at the beginning of epoch 2 of 4, then is called again.
CONFORMANCE(T26_ABackupGoesOnWithTheEpoch) {
  const Folder folder;
  const auto scope = t.strategy.scope();
  OneWeightModel model({});
  const auto callback = std::make_shared<FailInEpoch2>();
  const keras::FitOptions options{.epochs = 4,
                                  .callbacks = {callback, keras::BackupAndRestore(folder.path)},
                                  .verbose = kSilent};
  outcome([&] {
    model.fit(rows(8).batch(4), options);
    return 0;
  });
  const bool was_there = folder.has("chief/ckpt-2");
  callback->fails = false;
  callback->epochs.clear();
  model.fit(rows(8).batch(4), options);
  return show(callback->epochs, was_there, folder.has("chief/ckpt-2"), folder.has("chief/ckpt-4"));
}

CONFORMANCE(T27_ABackupKeepsItsLastFile) {
  const Folder folder;
  const auto scope = t.strategy.scope();
  OneWeightModel model({});
  model.fit(rows(8).batch(4),
            {.epochs = 2,
             .callbacks = {keras::BackupAndRestore(folder.path, {.delete_checkpoint = false})},
             .verbose = kSilent});
  return show(folder.has("chief/ckpt-1"), folder.has("chief/ckpt-2"));
}

CONFORMANCE(T28_TheChiefsFileIsWritten) {
  const Folder folder;
  testing::Workers(2, 1).each([&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    OneWeightModel model({});
    const int worker = strategy.extended().layout().worker();
    const std::string own = folder.path + "/" + std::to_string(worker) + ".safetensors";
    model.fit(rows(8).batch(4), {.callbacks = {keras::ModelCheckpoint(own)}, .verbose = kSilent});
  });
  return show(folder.has("0.safetensors"), folder.has("1.safetensors"));
}

CONFORMANCE(T30_StatisticsOverReplicasOfWhichOneIsEmpty) {
  const auto scope = t.strategy.scope();
  const keras::BatchNormalization layer({.momentum = 0, .synchronized = true});
  layer.base().ensure_built({kUnknownDim, 1});
  t.strategy.run([&](const Tensor& x) { layer(x, {.training = true}); },
                 t.values({tensor({2, 4}).unsqueeze(1), zeros({0, 1})}));
  return show(layer.variables()[2].value().item<double>(),
              std::round(layer.variables()[3].value().item<double>() * 1e6) / 1e6);
}

// One step at rate 1 on rows of the unit matrix: what each example's gradient counts.
Tensor example_weights(const Trial& t, keras::CompileOptions options) {
  const auto scope = t.strategy.scope();
  keras::Sequential model({keras::Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})});
  options.optimizer = keras::SGD({.learning_rate = 1});
  options.loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); };
  model.compile(std::move(options));
  const Tensor index = arange(3);
  const Tensor unit = index.unsqueeze(1).eq(index).to(kFloat32);
  model.fit(Dataset::from_tensor_slices({unit, index}).batch(4), {.verbose = kSilent});
  return -model.get_weights()[0].squeeze(-1);
}

CONFORMANCE(T31_WeightsOfExamplesInUnevenBatches) {
  return show(example_weights(t, {.exact_uneven_batches = false}), example_weights(t, {}));
}

}  // namespace
}  // namespace cohort::conformance
