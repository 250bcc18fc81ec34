// SPDX-License-Identifier: Apache-2.0
//
// A training run that can be stopped at any moment, and goes on where its newest checkpoint is:
// weights, optimizer, the place in the shuffled data, and the program's own counter. A run that was
// stopped ends with the same bits as one that was not.
//
//   checkpoint_resume --folder run --stop 170      (or press Ctrl-C, or pull the plug)
//   checkpoint_resume --folder run                 (goes on after step 150)
#include <cstdio>

#include "cohort/cohort.h"
#include "flags.h"

using namespace cohort;

namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kNumbers = 10000;

struct Options {
  std::string folder = "checkpoints";
  int64_t steps = 300;
  int64_t every = 50;  ///< Steps between checkpoints.
  int64_t stop = 0;    ///< Ends after this step, as a crash would; 0: does not.
};

int run(const Options& options) {
  set_seed(1);
  const MirroredStrategy strategy;
  const auto numbers =
      strategy.distribute_dataset(Dataset::range(kNumbers).shuffle(1000).batch(kBatch).repeat());
  auto iterator = numbers.make_iterator();
  const auto scope = strategy.scope();
  keras::Sequential model({keras::Dense(1)});
  const keras::Adam optimizer({.learning_rate = 0.1});
  int64_t step = 0;

  CheckpointManager manager(
      Checkpoint({{"model", model}, {"optimizer", optimizer}, {"data", iterator}, {"step", &step}}),
      options.folder, {.max_to_keep = 2, .background = true});
  if (manager.restore_latest()) {
    std::printf("going on after step %lld\n", static_cast<long long>(step));
  }

  const auto train_step = [&](const Tensor& n) {
    GradientTape tape;
    const Tensor x = n.to(kFloat32).unsqueeze(1) / static_cast<double>(kNumbers);
    const Tensor error = (model(x) - (x * 3 - 1)).square().squeeze(1);
    const Tensor loss = compute_average_loss(error, {.global_batch_size = kBatch});
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
  };
  while (step < options.steps) {
    strategy.run(train_step, iterator.get_next());
    ++step;
    if (step % options.every == 0) manager.save();
    if (step == options.stop) {
      std::printf("stopped after step %lld\n", static_cast<long long>(step));
      return 0;
    }
  }
  manager.wait();
  const std::vector<Tensor> weights = model.get_weights();
  std::printf("after step %lld: y = %.9g x + %.9g\n", static_cast<long long>(step),
              weights[0].item<double>(), weights[1].item<double>());
  return 0;
}

void declare(examples::Flags& flags, Options& options) {
  flags.add("--folder", options.folder, "Of the checkpoints");
  flags.add("--steps", options.steps, "Steps in all", {.at_least = 1});
  flags.add("--every", options.every, "Steps between checkpoints", {.at_least = 1});
  flags.add("--stop", options.stop, "Ends after this step, as a crash would; 0: does not",
            {.at_least = 0});
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_main<Options>(
      argc, argv, "Trains with checkpoints, and goes on where the newest one is.", declare, run);
}
