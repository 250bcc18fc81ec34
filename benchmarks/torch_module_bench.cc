// SPDX-License-Identifier: Apache-2.0
//
// The training step of a module in plain LibTorch code, by plain LibTorch with its allocator fixed
// and by Cohort: the same module, the same batch, the same cores. The two take turns.
//
//   torch_module_bench [--model resnet18] [--optimizer adam] [--replicas 1] [--rounds 12]
//
// Without options: the cases of kCases, each in a process of its own. With two replicas LibTorch
// trains the global batch of 2 x 32 with two threads inside its operations. vs_libtorch is its time
// by ours, in pairs: above 1 Cohort is the faster one.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli_main.h"
#include "cohort/base/check.h"
#include "cohort/cohort.h"
#include "cohort/keras/torch_module.h"
#include "machine.h"
#include "resnet18.h"
#include "samples.h"
#include "statistics.h"

namespace cohort::bench {
namespace {

constexpr int64_t kBatch = 32;  // of a replica
constexpr const char* kCases[] = {
    "--model mlp --optimizer adam --replicas 1",
    "--model resnet18 --optimizer adam --replicas 1 --rounds 8",
    "--model resnet18 --optimizer sgd --replicas 1 --rounds 6",
    "--model resnet18 --optimizer adam --replicas 2 --rounds 8",
};

struct Options {
  std::string model = "resnet18";
  std::string optimizer = "adam";
  int replicas = 1;
  int rounds = 12;
  int64_t width = 64;
};

using nn = torch::nn::Sequential;

nn make_mlp() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  return nn(Linear(784, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 10));
}

struct Batch {
  Tensor x, y;
};

Tensor loss_of(const Tensor& logits, const Tensor& y) {
  return torch::nn::functional::cross_entropy(logits, y);
}

/// One way to train; step() returns the loss before the update.
struct Trainer {
  virtual ~Trainer() = default;
  virtual double step() = 0;
};

template <class H>
struct PlainTrainer final : Trainer {
  PlainTrainer(const std::function<H()>& make, const Options& options, const Batch& data)
      : model(make()), batch(data) {
    if (options.optimizer == "adam") {
      optimizer = std::make_unique<torch::optim::Adam>(model->parameters(),
                                                       torch::optim::AdamOptions(1e-3));
    } else {
      optimizer =
          std::make_unique<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(1e-3));
    }
  }
  double step() override {
    optimizer->zero_grad();
    const Tensor loss = loss_of(model->forward(batch.x), batch.y);
    loss.backward();
    optimizer->step();
    return loss.template item<double>();
  }
  H model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  const Batch batch;
};

Strategy strategy_of(int replicas) {
  if (replicas == 1) return OneDeviceStrategy("CPU:0");
  std::vector<Device> devices;
  for (int i = 0; i < replicas; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  return MirroredStrategy(std::move(devices));
}

template <class H>
struct CohortTrainer final : Trainer {
  CohortTrainer(const std::function<H()>& make, const Options& options, const Batch& data)
      : strategy(strategy_of(options.replicas)), scope(strategy.scope()), model(make) {
    if (options.optimizer == "adam") {
      optimizer = keras::Adam({.learning_rate = 1e-3, .epsilon = 1e-8});
    } else {
      optimizer = keras::SGD({.learning_rate = 1e-3});
    }
    for (const Tensor& part : data.x.chunk(options.replicas)) x.push_back(part.clone());
    for (const Tensor& part : data.y.chunk(options.replicas)) y.push_back(part.clone());
  }
  double step() override {
    const auto losses = strategy.run([&] {
      const auto replica =
          static_cast<std::size_t>(get_replica_context().replica_id_in_sync_group());
      GradientTape tape;
      const Tensor loss = loss_of(model->forward(x[replica]), y[replica]) / double(x.size());
      optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
      return loss.detach();
    });
    return strategy.reduce(ReduceOp::kSum, losses).template item<double>();
  }
  const Strategy strategy;
  const Scope scope;
  keras::DistributedModule<typename H::ContainedType> model;
  keras::Optimizer optimizer;
  std::vector<Tensor> x, y;
};

// Rounding only, and with replicas the statistics of each one's own batch.
void check_equal_work(double plain, double cohort, int replicas) {
  const double difference = std::abs(plain - cohort) / plain;
  COHORT_CHECK(difference < (replicas == 1 ? 1e-3 : 0.1),
               "[torch_module_bench] expected LibTorch's loss of the first step, ", plain, ", got ",
               cohort);
}

/// One trainer, the allocator it is meant to have, and how its steps went.
struct Contender {
  Trainer& trainer;
  MemoryPolicy policy;
  std::vector<Sample> samples;

  double first_loss() {
    set_memory_policy(policy);
    return trainer.step();
  }

  void sample(int round, int steps, const std::vector<int>& cores) {
    set_memory_policy(policy);
    Sample one;
    one.round = round;
    one.steps = steps;
    one.before = probe(cores);
    const CpuTime cpu = cpu_time({getpgrp()});
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) trainer.step();
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
    const CpuTime spent = cpu_time({getpgrp()});
    one.us = us.count() / steps;
    one.after = probe(cores);
    const double others = spent.machine - cpu.machine - (spent.groups - cpu.groups);
    one.other_load = std::max(0.0, others / (us.count() * 1e-6 * double(cores.size())));
    one.state = classify(one.before, one.after, one.other_load);
    if (round > 0) samples.push_back(one);  // the first one warms up
  }
};

void print_line(const Options& options, const Contender& plain, const Contender& cohort) {
  const State state = headline(cohort.samples).value_or(State::kDegraded);
  const Spread ratio = spread(paired_ratios(plain.samples, cohort.samples, state));
  std::printf(
      "torch_module_bench: model=%s optimizer=%s replicas=%d batch=%lld us=%.0f libtorch_us=%.0f "
      "vs_libtorch=%s state=%s (%s)\n",
      options.model.c_str(), options.optimizer.c_str(), options.replicas,
      static_cast<long long>(kBatch), median(times_in(cohort.samples, state)),
      median(times_in(plain.samples, state)), range(ratio, "%.3f").c_str(), state_name(state),
      state_counts(cohort.samples).c_str());
}

void measure(const Options& options, Trainer& plain_trainer, Trainer& cohort_trainer,
             const std::vector<int>& cores) {
  fix_allocator();
  Contender plain{plain_trainer, MemoryPolicy::kSystem, {}};
  Contender cohort{cohort_trainer, MemoryPolicy::kCaching, {}};
  check_equal_work(plain.first_loss(), cohort.first_loss(), options.replicas);
  const int steps = options.model == "mlp" ? 200 : 1;
  for (int round = 0; round <= options.rounds; ++round) {
    Contender& first = round % 2 == 0 ? plain : cohort;
    Contender& second = round % 2 == 0 ? cohort : plain;
    first.sample(round, steps, cores);
    second.sample(round, steps, cores);
  }
  print_line(options, plain, cohort);
}

template <class H>
void run(const Options& options, const std::function<H()>& build, const Batch& batch,
         const std::vector<int>& cores) {
  const auto make = [&] {
    torch::manual_seed(1);
    return build();
  };
  // The strategy first: it counts the cores, and sets the threads of replicas on every run.
  CohortTrainer<H> cohort(make, options, batch);
  PlainTrainer<H> plain(make, options, batch);
  measure(options, plain, cohort, cores);
}

int run(const Options& options) {
  const std::vector<int> cores = usable_cores();
  confine_to_cores(options.replicas);
  at::set_num_threads(options.replicas);
  flush_denormals();
  torch::manual_seed(2);
  const int64_t rows = kBatch * options.replicas;
  const bool images = options.model == "resnet18";
  const Batch batch{.x = images ? torch::rand({rows, 1, 28, 28}) : torch::rand({rows, 784}),
                    .y = torch::randint(10, {rows}, torch::kLong)};
  if (images) {
    run<ResNet18>(
        options, [&] { return ResNet18(ResNet18Options{.width = options.width}); }, batch, cores);
  } else {
    run<nn>(options, make_mlp, batch, cores);
  }
  return 0;
}

void declare(CLI::App& app, Options& options) {
  app.add_option("--model", options.model, "What is trained")
      ->check(CLI::IsMember({"mlp", "resnet18"}));
  app.add_option("--optimizer", options.optimizer, "By which rule")
      ->check(CLI::IsMember({"adam", "sgd"}));
  app.add_option("--replicas", options.replicas, "Replicas of 32 rows each")
      ->check(examples::at_least(1));
  app.add_option("--rounds", options.rounds, "Times that each of the two is sampled")
      ->check(examples::at_least(1));
  app.add_option("--width", options.width, "Channels of the ResNet's first block")
      ->check(examples::at_least(1));
}

int run_all_cases(const std::string& program) {
  int worst = 0;
  for (const char* arguments : kCases) {
    worst = std::max(worst, std::system(("'" + program + "' " + arguments).c_str()));
  }
  return worst == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  using namespace cohort::bench;
  if (argc == 1) return run_all_cases(argv[0]);
  return examples::run_cli<Options>(argc, argv,
                                    "Trains a torch::nn module by plain LibTorch and by Cohort.",
                                    declare, [](const Options& options) { return run(options); });
}
