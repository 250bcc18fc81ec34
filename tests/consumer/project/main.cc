// SPDX-License-Identifier: Apache-2.0
//
// A program of somebody else, against an installed Cohort: learns a sum on two replicas.
#include <cohort/cohort.h>

#include <cstdio>

using namespace cohort;

int main() {
  set_seed(1);
  const Tensor x = random_normal({256, 4});
  const Tensor y = x.sum(1, /*keepdim=*/true);

  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  auto scope = strategy.scope();
  keras::Sequential model({keras::InputLayer({4}), keras::Dense(1)});
  model.compile(
      {.optimizer = keras::SGD({.learning_rate = 0.1}), .loss = keras::MeanSquaredError()});
  const auto data = data::Dataset::from_tensor_slices({x, y}).batch(32);
  const keras::History history =
      model.fit(data, {.epochs = 10, .verbose = keras::Verbose::kSilent});

  const auto& loss = history.history.at("loss");
  std::printf("%d replicas, loss %.4f -> %.6f\n", strategy.num_replicas_in_sync(), loss.front(),
              loss.back());
  return loss.back() < 1e-3 * loss.front() ? 0 : 1;
}
