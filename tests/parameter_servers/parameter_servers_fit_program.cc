// SPDX-License-Identifier: Apache-2.0
//
// Trains and evaluates on parameter servers, in the role that TF_CONFIG says, and counts what the
// model was shown: the labels of an epoch add up to a number that is known, if each step that was
// acknowledged is counted once.
//
//   parameter_servers_fit_program [STALENESS_BOUND]
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/keras/keras.h"
#include "tests/parameter_servers/job_program.h"

using namespace cohort;
using cohort::testing::run_job;
using cohort::testing::TestProgram;

namespace {

constexpr int64_t kRows = 640;

/// The sum of all labels.
struct Seen : keras::MetricBase {
  explicit Seen(std::string name = "seen") : MetricBase(std::move(name)) {}
  Variable sum = add_variable({}, "sum");
  void update_state(const Tensor& y, const Tensor&, const Tensor&) override {
    sum.assign_add(y.sum());
  }
  Tensor result() override { return sum.value(); }
  keras::Config get_config() const override { return keras::Config::object({{"name", name()}}); }
  static std::shared_ptr<Seen> from_config(const keras::Config& config) {
    return std::make_shared<Seen>(config.text("name"));
  }
};
COHORT_REGISTER_SERIALIZABLE("fit_program", Seen);

Dataset numbers() {
  const Tensor y = arange(kRows).to(kFloat32).reshape({kRows, 1});
  return Dataset::from_tensor_slices({(y / kRows).expand({kRows, 3}).contiguous(), y}).batch(8);
}
Dataset make_all(const InputContext&) { return numbers(); }
Dataset make_ones(const InputContext&) {
  return Dataset::from_tensor_slices({ones({8, 3}), ones({8, 1})}).repeat().batch(8);
}
COHORT_REGISTER_FUNCTION(make_all);
COHORT_REGISTER_FUNCTION(make_ones);

void lead(const std::shared_ptr<ClusterResolver>& resolver, std::optional<int> staleness_bound) {
  const ParameterServerStrategy strategy(
      {.cluster_resolver = resolver, .staleness_bound = staleness_bound});
  const auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(4), keras::Dense(1)});
  model.compile({.optimizer = keras::SGD({.learning_rate = 1e-9}),
                 .loss = "mae",
                 .metrics = {keras::Metric(std::make_shared<Seen>())}});
  constexpr auto kSilent = keras::Verbose::kSilent;
  const auto sent = model.fit(numbers(), {.epochs = 2, .verbose = kSilent});
  const auto own =
      model.fit(keras::DatasetCreator(make_ones), {.verbose = kSilent, .steps_per_epoch = 100});
  const auto evaluated = model.evaluate(keras::DatasetCreator(make_all), {.verbose = kSilent});
  std::printf("sent: %.0f and %.0f, own: %.0f, evaluated: %.0f, steps: %lld\n", sent["seen"][0],
              sent["seen"][1], own["seen"][0], evaluated.number("seen"),
              static_cast<long long>(model.optimizer().iterations().value().item<int64_t>()));
}

int run(int argc, char** argv) {
  return run_job([&](const auto& resolver) {
    lead(resolver, argc > 1 ? std::optional(std::stoi(argv[1])) : std::nullopt);
  });
}
const TestProgram kProgram("parameter_servers_fit_program", run);

}  // namespace
