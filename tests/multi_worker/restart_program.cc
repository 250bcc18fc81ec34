// SPDX-License-Identifier: Apache-2.0
//
// Trains, is killed, and goes on from what it has saved in FOLDER when it is started again:
//
//   restart_program fit|files|loop FOLDER [die|term WORKER STEP]
//   restart_program evaluate FOLDER           workers train, the evaluator follows
//
// fit has a BackupAndRestore, files, too, where each worker reads one of FOLDER.0.csv and
// FOLDER.1.csv (a, b, label); loop has a PreemptionCheckpointHandler. WORKER dies behind its step
// STEP of this start, or gets SIGTERM there. Writes the weights at the end, to the last bit.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cohort/base/exit_code.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/train_and_evaluate.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/strategy/preemption_checkpoint_handler.h"
#include "tests/small_training.h"
#include "tests/test_program.h"

using namespace cohort;

namespace {

constexpr int64_t kBatch = 32;  // of all replicas
constexpr int64_t kRows = 300;  // the last batch of an epoch has 12
constexpr int64_t kSteps = 20;
constexpr int kEpochs = 2;

struct Fault {
  std::string kind = {};
  int worker = -1;
  int64_t step = -1;
  void behind(const Strategy& strategy, int64_t now) const {
    if (now != step || strategy.extended().layout().worker() != worker) return;
    if (kind == "die") raise(SIGKILL);
    if (kind == "term") raise(SIGTERM);
  }
};

struct FaultCallback : keras::CallbackBase {
  FaultCallback(const Strategy& s, Fault f) : strategy(s), fault(std::move(f)) {}
  void on_train_batch_end(int64_t, keras::Logs&) override { fault.behind(strategy, ++steps); }
  const Strategy strategy;
  const Fault fault;
  int64_t steps = 0;
};

Dataset data_of_test() {
  const proof::Data data = proof::ten_classes({kRows, proof::kFeatures});
  return Dataset::from_tensor_slices({data.x, data.y}).shuffle(kRows).batch(kBatch);
}

Dataset data_of_files(const std::string& folder) {
  DataOptions options;
  options.auto_shard_policy = AutoShardPolicy::kFile;
  return Dataset::csv({folder + ".0.csv", folder + ".1.csv"},
                      {.columns = {{.name = "a"}, {.name = "b"}, {.name = "label"}}})
      .map([](float a, float b, float label) {
        return std::tuple((arange(proof::kFeatures).to(kFloat32) * a + b).sin(),
                          static_cast<int64_t>(label));
      })
      .shuffle(64)
      .batch(kBatch)
      .prefetch(2)
      .with_options(options);
}

// Without statistics that each replica has of its own: a Checkpoint keeps their mean.
std::vector<keras::Layer> layers_of_loop() {
  return {keras::InputLayer({proof::kFeatures}), keras::Dense(32, {.activation = "relu"}),
          keras::Dropout(0.2), keras::Dense(10)};
}
std::vector<keras::Layer> layers_of_fit() {
  std::vector<keras::Layer> layers = layers_of_loop();
  layers.insert(layers.begin() + 2, keras::BatchNormalization());
  return layers;
}

void fit(const Strategy& strategy, const Dataset& data, const std::string& folder,
         const Fault& fault) {
  const auto scope = strategy.scope();
  keras::Sequential model(layers_of_fit());
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  const keras::History history =
      model.fit(data, {.epochs = kEpochs,
                       .validation_data = data,
                       .callbacks = {std::make_shared<FaultCallback>(strategy, fault),
                                     keras::BackupAndRestore(
                                         folder, {.save_freq = 3, .save_before_preemption = true})},
                       .verbose = keras::Verbose::kSilent});
  std::printf("loss %a accuracy %a\n", history["loss"].back(), history["accuracy"].back());
  std::printf("weights %016llx\n",
              static_cast<unsigned long long>(proof::hash_of(model.get_weights())));
}

void loop(const Strategy& strategy, const std::string& folder, const Fault& fault) {
  const auto scope = strategy.scope();
  keras::Sequential model(layers_of_loop());
  keras::Adam optimizer;
  keras::SparseCategoricalCrossentropy loss_fn(
      {.from_logits = true, .reduction = keras::Reduction::kNone});
  auto input = strategy.distribute_dataset(data_of_test().repeat()).make_iterator();
  PreemptionCheckpointHandler handler(
      strategy.cluster_resolver(),
      Checkpoint({{"model", model}, {"optimizer", optimizer}, {"input", input}}), folder);
  std::printf("begins at run %lld\n", static_cast<long long>(handler.total_run_calls()));
  for (int64_t step = 1; handler.total_run_calls() < kSteps; ++step) {
    handler.run([&] {
      strategy.run(
          [&](const Tensor& x, const Tensor& y) {
            GradientTape tape;
            const Tensor loss = compute_average_loss(loss_fn(y, model(x, {.training = true})),
                                                     {.global_batch_size = kBatch});
            optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
          },
          input.get_next());
    });
    fault.behind(strategy, step);
  }
  std::printf("weights %016llx\n",
              static_cast<unsigned long long>(proof::hash_of(model.get_weights())));
}

void train_and_evaluate(const Strategy& strategy, const std::string& folder) {
  const auto scope = strategy.scope();
  keras::Sequential model(layers_of_loop());
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true})});
  const auto result = keras::train_and_evaluate(
      model, folder, {data_of_test(), {.epochs = 3, .verbose = keras::Verbose::kSilent}},
      {data_of_test(),
       {.verbose = keras::Verbose::kSilent, .poll_every = std::chrono::milliseconds(20)}});
  const bool trained = !result.history.epoch.empty();
  const keras::Logs logs =
      trained ? model.evaluate(data_of_test(), {.verbose = keras::Verbose::kSilent})
              : result.evaluation;
  std::printf("%s %.4f\n", trained ? "trained" : "evaluated", logs.number("loss"));
}

int run(int argc, char** argv) {
  const std::string style = argc > 2 ? argv[1] : "";
  if (style != "fit" && style != "files" && style != "loop" && style != "evaluate") {
    std::fprintf(stderr,
                 "usage: restart_program fit|files|loop|evaluate FOLDER [die|term WORKER STEP]\n");
    return 2;
  }
  Fault fault;
  if (argc > 5) {
    fault = {.kind = argv[3], .worker = std::atoi(argv[4]), .step = std::atoi(argv[5])};
  }
  // Where nothing has been saved, all begin alike.
  set_seed(7);
  const MultiWorkerMirroredStrategy strategy;
  if (style == "evaluate") {
    train_and_evaluate(strategy, argv[2]);
    return 0;
  }
  if (style == "loop") {
    loop(strategy, argv[2], fault);
  } else {
    fit(strategy, style == "fit" ? data_of_test() : data_of_files(argv[2]), argv[2], fault);
  }
  return 0;
}

int run_and_say(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_code_of(e);
  }
}
const cohort::testing::TestProgram kProgram("restart_program", run_and_say);

}  // namespace
