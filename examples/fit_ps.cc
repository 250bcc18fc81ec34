// SPDX-License-Identifier: Apache-2.0
//
// fit on parameter servers: the program of any strategy, but for run_task, where workers and
// servers leave it, and a function by which each worker makes its own data.
//
//   cohortrun --ps 2 --workers 2 --chief -- fit_ps [--epochs 5 --steps 100]
#include <cstdio>
#include <memory>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

struct Options {
  int epochs = 5;
  int steps = 100;
};

/// Points of the plane, and whether they lie in a ring.
std::pair<Tensor, Tensor> points(const Tensor& numbers) {
  const Tensor at =
      (numbers.to(kFloat32).unsqueeze(1) * tensor({0.618034F, 0.754878F})).frac() * 2 - 1;
  const Tensor radius = at.square().sum(1, /*keepdim=*/true).sqrt();
  return {at, ((radius - 0.6).abs() < 0.2).to(kFloat32)};
}
Dataset make_training_data(const InputContext& context, int64_t batch) {
  return Dataset::range(20000)
      .shard(context.num_input_pipelines, context.input_pipeline_id)
      .shuffle(2000)
      .repeat()
      .batch(batch)
      .map(points);
}
// Each part of an evaluation passes over all of it, and keeps its batches.
Dataset make_test_data(const InputContext&) {
  return Dataset::range(20000, 25000).batch(100).map(points);
}
COHORT_REGISTER_FUNCTION(make_training_data);
COHORT_REGISTER_FUNCTION(make_test_data);

void declare(examples::Flags& flags, Options& options) {
  flags.add("--epochs", options.epochs, "Times that it is tested", {.at_least = 1});
  flags.add("--steps", options.steps, "Executions of ten steps in an epoch", {.at_least = 1});
}

int run(const Options& options) {
  const auto resolver = std::make_shared<TFConfigClusterResolver>();
  if (run_task(*resolver)) return 0;  // a worker or parameter server, whose job is over
  const ParameterServerStrategy strategy({.cluster_resolver = resolver});
  const auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(32, {.activation = "relu"}),
                           keras::Dense(32, {.activation = "relu"}),
                           keras::Dense(1, {.activation = "sigmoid"})});
  model.compile({.optimizer = keras::Adam({.learning_rate = 0.01}),
                 .loss = "binary_crossentropy",
                 .metrics = {"accuracy"},
                 .steps_per_execution = 10});
  const keras::DataSource test = keras::DatasetCreator(make_test_data);
  model.fit(keras::DatasetCreator(make_training_data, 50),
            {.epochs = options.epochs,
             .validation_data = test,
             .steps_per_epoch = int64_t{10} * options.steps});
  const double right = model.evaluate(test).number("accuracy");
  std::printf("right: %.3f of 5000 points\n", right);
  return right > 0.8 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(argc, argv, "Trains a network on parameter servers by fit.",
                                     declare, run);
}
