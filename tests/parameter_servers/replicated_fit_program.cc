// SPDX-License-Identifier: Apache-2.0
//
// Trains on parameter servers that have copies of everything, in the role that TF_CONFIG says:
//
//   replicated_fit_program DIRECTORY [STEPS]
//
// Each step's gradient is 1 for each weight, so Adagrad's slots count the steps, each once. Then it
// writes a checkpoint there, spoils the weights, and reads it.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "cohort/checkpoint/checkpoint.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/keras/keras.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

constexpr double kFarAway = 1e6;

Dataset make_far(const InputContext&) {
  return Dataset::from_tensor_slices({ones({8, 3}), full({8, 1}, kFarAway)}).repeat().batch(8);
}
COHORT_REGISTER_FUNCTION(make_far);

double most(const Variable& variable) { return variable.value().max().item<double>(); }

void lead(const std::shared_ptr<ClusterResolver>& resolver, const std::string& directory,
          int64_t steps) {
  const ParameterServerStrategy strategy({.cluster_resolver = resolver, .replicas = 2});
  const auto scope = strategy.scope();
  // From zero, so that every step of Adagrad makes the weights larger than they were at first.
  keras::Sequential model({keras::Dense(1, {.use_bias = false, .kernel_initializer = "zeros"})});
  keras::Adagrad optimizer({.learning_rate = 0.01, .initial_accumulator_value = 0});
  model.compile({.optimizer = optimizer, .loss = "mae", .steps_per_execution = 5});
  std::printf("begins\n");
  std::fflush(stdout);
  model.fit(keras::DatasetCreator(make_far),
            {.epochs = 2, .verbose = keras::Verbose::kSilent, .steps_per_epoch = steps / 2});
  const Variable kernel = model.trainable_variables().front();
  const double trained = most(kernel);
  double slot = 0;
  for (const Variable& each : optimizer.variables()) {
    if (each.name().find("accumulator") != std::string::npos) slot = most(each);
  }
  std::printf("counted: %.0f steps: %lld\n", slot,
              static_cast<long long>(optimizer.iterations().value().item<int64_t>()));
  const Checkpoint checkpoint({{"model", model}, {"optimizer", optimizer}});
  checkpoint.save(directory + "/checkpoint");
  kernel.assign(kernel.value() * 0);
  checkpoint.restore(directory + "/checkpoint");
  std::printf("restored: %d, moved: %d\n", most(kernel) == trained ? 1 : 0, trained > 0 ? 1 : 0);
}

int run(int argc, char** argv) {
  return run_job([&](const auto& resolver) {
    lead(resolver, argc > 1 ? argv[1] : ".", argc > 2 ? std::atoi(argv[2]) : 100);
  });
}
const TestProgram kProgram("replicated_fit_program", run);

}  // namespace
