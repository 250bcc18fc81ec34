// SPDX-License-Identifier: Apache-2.0
//
// A strategy of one's own, by public headers alone: local SGD. Replicas train weights of their own
// and take the mean of them every `period` steps, so that they meet that much more rarely. Trains a
// line through noisy points with it, in a loop and by fit, and checks what comes out.
//
//   local_sgd_strategy
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

class LocalSgdExtended final : public LocalStrategyExtended {
 public:
  LocalSgdExtended(std::vector<Device> devices, int64_t period)
      : LocalStrategyExtended({.name = "LocalSgdStrategy",
                               .devices = std::move(devices),
                               .variable_options = own_weights}),
        period_(period) {}

 protected:
  // On every replica's thread, with that replica's gradients.
  void do_apply_gradients(const Gradients& gradients, OptimizerStep& step) override {
    const ReplicaContext replica = get_replica_context();
    // Of the replica's own rows: the loss was divided by those of all.
    std::vector<GradientAndVariable> own(gradients.begin(), gradients.end());
    for (auto& [gradient, variable] : own) {
      if (!gradient.has_value()) continue;
      gradient = gradient.as_tensor() * replica.num_replicas_in_sync();
    }
    // Nothing is written before all have come: a step that fails on one is made by none.
    replica.merge_call([](Strategy&) {});
    step.apply_alone(own);
    if ((step.iterations() + 1) % period_ != 0) return;
    replica.merge_call([&](Strategy&) {
      for (const auto& pair : gradients) pair.variable.assign(pair.variable.value());
    });
  }

 private:
  // Copies of what is trained go their own ways; outside of replicas their mean is read.
  static VariableOptions own_weights(const VariableOptions& asked) {
    VariableOptions options = asked;
    if (*asked.trainable) {
      options.synchronization = Synchronization::kOnRead;
      options.aggregation = Aggregation::kMean;
    }
    return options;
  }

  const int64_t period_;
};

class LocalSgdStrategy : public Strategy {
 public:
  LocalSgdStrategy(std::vector<Device> devices, int64_t period) {
    extended_ = std::make_shared<LocalSgdExtended>(std::move(devices), period);
  }
};

const std::vector<Device> kDevices = {"CPU:0", "CPU:1"};
constexpr int64_t kGlobalBatch = 32;

Dataset points() {
  const Tensor x = random_uniform({256, 1}) * 2 - 1;
  return Dataset::from_tensor_slices({x, x * 3 - 1 + random_normal({256, 1}) * 0.01})
      .batch(kGlobalBatch);
}

// Of the copies after each step: how far they are apart, and the mean's slope at the end.
struct Course {
  std::vector<double> apart;
  double slope = 0;
};

Course train(const Strategy& strategy) {
  set_seed(1);
  const auto dist = strategy.distribute_dataset(points());
  const auto scope = strategy.scope();
  const Variable slope(0.0, {.name = "slope", .shape = Shape{1, 1}});
  const Variable offset(0.0, {.name = "offset", .shape = Shape{1}});
  keras::SGD optimizer({.learning_rate = 0.2});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor error = x.matmul(slope) + offset - y;
    const Tensor loss = compute_average_loss(error * error, {.global_batch_size = kGlobalBatch});
    optimizer.apply_gradients(tape.gradient(loss, {slope, offset}));
  };
  Course course;
  for (auto& batch : dist) {
    strategy.run(step, batch);
    const auto copies = strategy.local_results(slope);
    course.apart.push_back((copies[0].value() - copies[1].value()).abs().item<double>());
  }
  course.slope = slope.value().item<double>();
  return course;
}

double loss_of_fit(const Strategy& strategy) {
  set_seed(1);
  const Dataset data = points();
  const auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(1)});
  model.compile({.optimizer = keras::SGD({.learning_rate = 0.2}), .loss = "mse"});
  return model.fit(data, {.epochs = 10, .verbose = keras::Verbose::kSilent})["loss"].back();
}

bool check(bool holds, const char* what) {
  std::printf("%s: %s\n", what, holds ? "yes" : "NO");
  return holds;
}

bool run() {
  const Course mirrored = train(MirroredStrategy(kDevices));
  const Course every = train(LocalSgdStrategy(kDevices, 1));
  const Course fourth = train(LocalSgdStrategy(kDevices, 4));
  bool good =
      check(std::abs(every.slope - mirrored.slope) < 1e-5, "period 1 is as MirroredStrategy");
  for (std::size_t i = 0; i < fourth.apart.size(); ++i) {
    const bool met = (i + 1) % 4 == 0;
    good &= (fourth.apart[i] == 0) == met && every.apart[i] == 0;
  }
  check(good, "with period 4 copies differ, and agree after every fourth step");
  return good & check(loss_of_fit(LocalSgdStrategy(kDevices, 4)) < 0.001, "fit learns");
}

}  // namespace

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
