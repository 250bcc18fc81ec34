// SPDX-License-Identifier: Apache-2.0
//
// Trains a small network and says after every step which weights it has come to, so that a test can
// do something to it meanwhile and see what it holds in the end:
//
//   faults_program [--mirrored REPLICAS] [--steps N] [--timeout SECONDS] [--fit]
//
// Under MultiWorkerMirroredStrategy, or under MirroredStrategy in one process.
#include <cinttypes>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include "cohort/base/exit_code.h"
#include "cohort/keras/keras.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "tests/small_training.h"
#include "tests/test_program.h"

using namespace cohort;

namespace {

constexpr int64_t kBatch = 24;  // of all replicas

struct Flags {
  int mirrored = 0;
  int steps = 6;
  double timeout = 30;
  bool fit = false;
};

Flags flags_of(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--fit") {
      flags.fit = true;
      continue;
    }
    if (++i == argc) throw std::invalid_argument(flag + " has no value");
    if (flag == "--mirrored") {
      flags.mirrored = std::stoi(argv[i]);
    } else if (flag == "--steps") {
      flags.steps = std::stoi(argv[i]);
    } else if (flag == "--timeout") {
      flags.timeout = std::stod(argv[i]);
    } else {
      throw std::invalid_argument("there is no flag " + flag);
    }
  }
  return flags;
}

Strategy make_strategy(const Flags& flags) {
  if (flags.mirrored > 0) return proof::strategy_of(flags.mirrored);
  const auto timeout = std::chrono::duration<double>(flags.timeout);
  return MultiWorkerMirroredStrategy(
      {.communication_options = {
           .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)}});
}

// Trains it; what the network holds can be seen before and after an error.
class Training {
 public:
  explicit Training(const Flags& flags)
      : flags_(flags),
        strategy_(make_strategy(flags)),
        data_(proof::ten_classes({kBatch * 4, proof::kFeatures}).dataset().batch(kBatch)) {
    const auto scope = strategy_.scope();
    model_.emplace(proof::mlp());
  }

  void train() {
    const auto scope = strategy_.scope();
    flags_.fit ? fit() : loop();
  }

  void write(const char* what) const {
    const auto scope = strategy_.scope();
    std::printf("%s %d weights %016" PRIx64 "\n", what, steps_,
                proof::hash_of(model_->get_weights()));
    std::fflush(stdout);
  }

 private:
  void fit() {
    model_->compile({.optimizer = keras::Adam(),
                     .loss = keras::SparseCategoricalCrossentropy({.from_logits = true})});
    const keras::LambdaCallback after_step({.on_train_batch_end = [this](int64_t, keras::Logs&) {
      ++steps_;
      write("step");
    }});
    model_->fit(data_.repeat(), {.epochs = 2,
                                 .validation_data = data_,
                                 .callbacks = {after_step},
                                 .verbose = keras::Verbose::kSilent,
                                 .steps_per_epoch = flags_.steps});
  }
  void loop() {
    keras::Adam optimizer;
    keras::SparseCategoricalCrossentropy loss_fn(
        {.from_logits = true, .reduction = keras::Reduction::kNone});
    const auto step = [&](const Tensor& x, const Tensor& y) {
      GradientTape tape;
      const Tensor loss =
          compute_average_loss(loss_fn(y, (*model_)(x)), {.global_batch_size = kBatch});
      optimizer.apply_gradients(tape.gradient(loss, model_->trainable_variables()));
    };
    for (const auto& batch : strategy_.distribute_dataset(data_.repeat())) {
      if (steps_ == flags_.steps) break;
      strategy_.run(step, batch);
      ++steps_;
      write("step");
    }
  }

  Flags flags_;
  Strategy strategy_;
  Dataset data_;
  std::optional<keras::Sequential> model_;
  int steps_ = 0;
};

int run(const Flags& flags) {
  set_seed(7);
  Training training(flags);
  try {
    training.train();
  } catch (const Error& e) {
    std::printf("error %s\n", e.what());
    training.write("held");
    return exit_code_of(e);
  }
  training.write("done");
  return 0;
}

int run_flags(int argc, char** argv) {
  try {
    return run(flags_of(argc, argv));
  } catch (const std::exception& e) {
    std::printf("error %s\n", e.what());
    return exit_code_of(e);
  }
}
const cohort::testing::TestProgram kProgram("faults_program", run_flags);

}  // namespace
