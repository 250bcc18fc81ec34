// SPDX-License-Identifier: Apache-2.0
//
// Trains a small network and writes what it has come to, to the last bit:
//
//   multi_worker_program shuffle
//   multi_worker_program fit|loop|convolutions
//       [mirrored REPLICAS | mpi | die|stop|throw|slow|fork|fork_and_die WORKER STEP]
//
// Under MultiWorkerMirroredStrategy, or in one process under MirroredStrategy. Or worker WORKER
// dies, is stopped until somebody lets it go on, fails, or has a child that ends as a program does
// (fork), or that outlives it (fork_and_die), before its step STEP; slow: all wait before each,
// and WORKER five times as long.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cohort/base/exit_code.h"
#include "cohort/keras/keras.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "tests/small_training.h"
#include "tests/test_program.h"

using namespace cohort;

namespace {

constexpr int64_t kBatch = 32;  // of all replicas
constexpr int64_t kRows = 320;
constexpr int kEpochs = 2;
constexpr std::chrono::seconds kTimeoutOfSlow{3};  // shorter than tests stop it
constexpr useconds_t kHeartbeats = 700'000;        // three of the tests'
constexpr useconds_t kSlow = 100'000;
constexpr useconds_t kSlowest = 500'000;

// What leaves run() in a child.
struct ChildEnds {};

void have_child(bool stays) {
  const pid_t child = fork();
  if (child == 0 && !stays) throw ChildEnds();
  if (child == 0) pause();
  if (stays) raise(SIGKILL);
  int status = -1;
  waitpid(child, &status, 0);
  std::printf("child %d\n", status);
}

struct Fault {
  std::string kind = {};
  int worker = -1;
  int step = -1;
  void at(const Strategy& strategy, int now) const {
    const bool is_one = strategy.extended().layout().worker() == worker;
    if (kind == "slow") usleep(is_one ? kSlowest : kSlow);
    if (now != step || strategy.extended().layout().worker() != worker) return;
    if (kind == "die") raise(SIGKILL);
    if (kind == "stop") {
      usleep(kHeartbeats);  // what is known of it is what it is at
      raise(SIGSTOP);
      return;
    }
    if (kind.starts_with("fork")) return have_child(kind != "fork");
    if (kind == "slow") return;
    throw InvalidArgument("[program] the data of this step are bad");
  }
};

void write_weights(keras::Sequential& model) {
  std::printf("weights %016llx\n",
              static_cast<unsigned long long>(proof::hash_of(model.get_weights())));
}

void fit(const Dataset& data, keras::Sequential& model) {
  model.compile({.optimizer = keras::Adam(),
                 .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {keras::SparseCategoricalAccuracy("accuracy")}});
  const keras::History history =
      model.fit(data, {.epochs = kEpochs, .verbose = keras::Verbose::kSilent});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto at = static_cast<std::size_t>(epoch);
    std::printf("loss %a accuracy %a\n", history["loss"][at], history["accuracy"][at]);
  }
}

void loop(const Strategy& strategy, const Dataset& data, keras::Sequential& model,
          const Fault& fault) {
  keras::Adam optimizer;
  keras::SparseCategoricalCrossentropy loss_fn(
      {.from_logits = true, .reduction = keras::Reduction::kNone});
  const auto step = [&](const Tensor& x, const Tensor& y) -> Tensor {
    GradientTape tape;
    const Tensor loss = compute_average_loss(loss_fn(y, model(x)), {.global_batch_size = kBatch});
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
    return loss;
  };
  const auto dist = strategy.distribute_dataset(data);
  int steps = 0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : dist) {
      fault.at(strategy, steps++);
      const PerReplica<Tensor> losses = strategy.run(step, batch);
      for (int r = 0; r < static_cast<int>(losses.size()); ++r) {
        std::printf("step %d replica %d loss %a\n", steps,
                    strategy.extended().layout().global_id(r),
                    losses[static_cast<std::size_t>(r)].item<double>());
      }
    }
  }
}

// What a program that has set no seed sees, or the one of SEED.
void shuffle() {
  if (const char* const seed = std::getenv("SEED")) {
    set_seed(static_cast<uint64_t>(std::strtoull(seed, nullptr, 10)));
  }
  const MultiWorkerMirroredStrategy strategy;
  for (const Element& element : Dataset::range(30).shuffle(30)) {
    std::printf("%lld ", static_cast<long long>(element.tensor().item<int64_t>()));
  }
  std::printf("\n");
}

int run(int argc, char** argv) {
  const std::string style = argc > 1 ? argv[1] : "";
  if (style == "shuffle") {
    shuffle();
    return 0;
  }
  const std::string kind = argc > 3 ? argv[2] : "";
  const int number = argc > 3 ? std::atoi(argv[3]) : 0;
  set_seed(7);
  MultiWorkerMirroredOptions options;
  if (argc == 3 && std::string(argv[2]) == "mpi") {
    options.communication_options.implementation = CommunicationImplementation::kMpi;
  }
  if (kind == "slow") options.communication_options.timeout = kTimeoutOfSlow;
  const Strategy strategy =
      kind == "mirrored" ? proof::strategy_of(number) : MultiWorkerMirroredStrategy(options);
  // Whose sums are long enough to be shared out among threads.
  const bool convolves = style == "convolutions";
  const Shape shape = convolves ? Shape{kRows / 4, proof::kPixels, proof::kPixels, 1}
                                : Shape{kRows, proof::kFeatures};
  const Dataset data = proof::ten_classes(shape).dataset().shuffle(kRows).batch(kBatch);
  const auto scope = strategy.scope();
  keras::Sequential model(convolves ? proof::cnn() : proof::mlp());
  Fault fault{.kind = kind, .worker = number, .step = argc > 4 ? std::atoi(argv[4]) : -1};
  style != "loop" ? fit(data, model) : loop(strategy, data, model, fault);
  write_weights(model);
  return 0;
}

int run_and_say(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what others wait for comes line by line
  try {
    return run(argc, argv);
  } catch (const ChildEnds&) {
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_code_of(e);
  }
}
const cohort::testing::TestProgram kProgram("multi_worker_program", run_and_say);

}  // namespace
