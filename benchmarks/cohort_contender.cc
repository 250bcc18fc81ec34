// SPDX-License-Identifier: Apache-2.0
//
// Cohort as a user writes it: a custom loop (the bare step), and `fit`.
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/check.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/collectives/transports/tcp/socket.h"
#include "cohort/keras/callbacks/callback.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "contender.h"
#include "machine.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<Device> devices(int replicas) {
  std::vector<Device> names;
  for (int r = 0; r < replicas; ++r) names.emplace_back("CPU:" + std::to_string(r));
  return names;
}

std::vector<keras::Layer> layers(const Workload& workload) {
  if (workload.benchmark_case().model == "cnn") {
    return {keras::Conv2D(32, 3, {.activation = "relu"}),
            keras::MaxPooling2D(),
            keras::Conv2D(64, 3, {.activation = "relu"}),
            keras::MaxPooling2D(),
            keras::Flatten(),
            keras::Dense(128, {.activation = "relu"}),
            keras::Dense(10)};
  }
  std::vector<keras::Layer> dense;
  const std::size_t count = workload.parameters().size() / 2;  // a kernel and a bias each
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t units = workload.parameters()[2 * i].shape[1];
    dense.push_back(i + 1 < count ? keras::Dense(units, {.activation = "relu"})
                                  : keras::Dense(units));
  }
  return dense;
}

template <class T>
Tensor tensor_of(const T* data, const Shape& shape) {
  std::int64_t size = 1;
  for (std::int64_t n : shape) size *= n;
  return from_vector(std::vector<T>(data, data + size), shape);
}

Shape input_shape(const Workload& workload, std::int64_t rows) {
  if (workload.benchmark_case().model == "cnn") return {rows, 28, 28, 1};
  return {rows, workload.features_per_row()};
}

Tensor features_of(const Workload& workload, std::int64_t batch, int replica, std::int64_t rows) {
  return tensor_of(workload.features(batch, replica), input_shape(workload, rows));
}

// Who trains: all replicas of a strategy, of which these are this process's.
struct Team {
  Strategy strategy;
  int first = 0;
  int local = 1;
};

Team mirrored_team(int replicas) { return {MirroredStrategy(devices(replicas)), 0, replicas}; }

// The model with its initial weights, and a new optimizer.
struct Trained {
  Trained(const Workload& workload, const Team& team)
      : strategy(team.strategy),
        scope(strategy.scope()),
        model(layers(workload)),
        optimizer(keras::Adam({.epsilon = 1e-12})) {
    model.ensure_built(input_shape(workload, kUnknownDim));
    std::vector<Tensor> weights;
    for (std::size_t i = 0; i < workload.parameters().size(); ++i) {
      weights.push_back(tensor_of(workload.weights(i), workload.parameters()[i].shape));
    }
    model.set_weights(weights);
    if (default_threads()) return;
    // Replica r trains on core r, as all contenders do.
    const std::vector<int> cores = contender_cores();
    strategy.run([&] {
      const auto replica = get_replica_context().replica_id_in_sync_group();
      pin_to(cores[static_cast<std::size_t>(replica) % cores.size()]);
    });
  }

  double divergence() const {
    double worst = 0;
    for (const Variable& variable : model.trainable_variables()) {
      const std::vector<Variable> copies = variable.components();
      for (const Variable& copy : copies) {
        const Tensor difference = at::abs(at::sub(copy.value(), copies[0].value()));
        worst = std::max(worst, at::max(difference).item().toDouble());
      }
    }
    return worst;
  }

  Strategy strategy;
  Scope scope;
  keras::Sequential model;
  keras::Optimizer optimizer;
};

/// A custom loop: run, tape, apply. Alone: only the first replica's rows, on one replica.
class BareStep : public Contender {
 public:
  explicit BareStep(bool alone) : alone_(alone) {}
  explicit BareStep(Team team) : alone_(false), team_(std::move(team)) {}

  void init(const Workload& workload) override {
    workload_ = &workload;
    const Case& c = workload.benchmark_case();
    replicas_ = alone_ ? 1 : c.replicas;
    const Team team = team_ ? *team_ : mirrored_team(replicas_);
    features_.clear();
    labels_.clear();
    for (std::int64_t i = 0; i < Workload::kBatches; ++i) {
      std::vector<Tensor> x, y;
      for (int r = team.first; r < team.first + team.local; ++r) {
        x.push_back(features_of(workload, i, r, c.batch));
        y.push_back(tensor_of(workload.labels(i, r), {c.batch}));
      }
      features_.emplace_back(std::move(x));
      labels_.emplace_back(std::move(y));
    }
    reset();
    run(3);
  }

  void reset() override {
    trained_.reset();
    trained_ = std::make_unique<Trained>(*workload_, team_ ? *team_ : mirrored_team(replicas_));
    next_ = 0;
  }

  StepTime run(std::int64_t steps) override {
    const keras::SparseCategoricalCrossentropy loss_function(
        {.from_logits = true, .reduction = keras::Reduction::kSum});
    const double scale = 1.0 / static_cast<double>(workload_->benchmark_case().batch * replicas_);
    keras::Sequential& model = trained_->model;
    const keras::Optimizer& optimizer = trained_->optimizer;
    const auto step = [&](const Tensor& x, const Tensor& y) {
      GradientTape tape;
      Tensor loss = loss_function.reduced(y, model(x, {.training = true}), {}, scale);
      optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
      return loss;
    };
    PerReplica<Tensor> loss;
    const auto start = Clock::now();
    for (std::int64_t i = next_; i < next_ + steps; ++i) {
      const std::size_t batch = static_cast<std::size_t>(i % Workload::kBatches);
      loss = trained_->strategy.run(step, features_[batch], labels_[batch]);
    }
    StepTime time{std::chrono::nanoseconds(Clock::now() - start).count(), 0};
    next_ += steps;
    time.loss = trained_->strategy.reduce(ReduceOp::kSum, loss).item().toDouble();
    return time;
  }

  double divergence() override { return trained_->divergence(); }

 private:
  const bool alone_;
  const std::optional<Team> team_ = {};
  int replicas_ = 1;
  const Workload* workload_ = nullptr;
  std::vector<PerReplica<Tensor>> features_, labels_;
  std::unique_ptr<Trained> trained_;
  std::int64_t next_ = 0;
};

// Times an epoch, as the Keras peer's callback does.
struct EpochTime : keras::CallbackBase {
  void on_epoch_begin(int) override { start = Clock::now(); }
  void on_epoch_end(int, keras::Logs& logs) override {
    time = {std::chrono::nanoseconds(Clock::now() - start).count(), logs.number("loss")};
  }
  Clock::time_point start;
  StepTime time;
};

/// The README's program: shuffled and batched rows, a metric, the progress bar.
class Fit : public Contender {
 public:
  void init(const Workload& workload) override {
    workload_ = &workload;
    const Case& c = workload.benchmark_case();
    const std::int64_t rows = Workload::kBatches * c.global_batch();
    const auto data = data::Dataset::from_tensor_slices(
        {features_of(workload, 0, 0, rows), tensor_of(workload.labels(0, 0), {rows})});
    in_order_ = data.batch(c.global_batch());
    training_ = data.shuffle(rows).repeat().batch(c.global_batch());
    reset();
    run(3);
  }

  void reset() override {
    trained_.reset();
    trained_ =
        std::make_unique<Trained>(*workload_, mirrored_team(workload_->benchmark_case().replicas));
    trained_->model.compile({.optimizer = trained_->optimizer,
                             .loss = keras::SparseCategoricalCrossentropy({.from_logits = true}),
                             .metrics = {keras::SparseCategoricalAccuracy()}});
  }

  StepTime run(std::int64_t steps) override { return train(*training_, steps); }

  // An epoch's loss is the mean of its steps', so the last step's batch is evaluated before it.
  double loss(std::int64_t steps) override {
    reset();
    train(*in_order_, steps - 1);
    trained_->model.reset_metrics();
    auto last = in_order_->skip(steps - 1).take(1);
    return trained_->model.evaluate(last, {.verbose = keras::Verbose::kSilent}).number("loss");
  }

  double divergence() override { return trained_->divergence(); }

 private:
  StepTime train(const data::Dataset& dataset, std::int64_t steps) {
    auto clock = std::make_shared<EpochTime>();
    trained_->model.fit(
        dataset, {.callbacks = {clock}, .verbose = keras::Verbose::kBar, .steps_per_epoch = steps});
    return clock->time;
  }

  const Workload* workload_ = nullptr;
  std::optional<data::Dataset> in_order_, training_;
  std::unique_ptr<Trained> trained_;
};

// Worker `rank` of two, each with one replica.
Team worker_team(const std::vector<std::string>& addresses, int rank) {
  return {MultiWorkerMirroredStrategy({.cluster_resolver = std::make_shared<SimpleClusterResolver>(
                                           ClusterSpec({{"worker", addresses}}),
                                           TaskOptions{.task_type = "worker", .task_id = rank})}),
          rank, 1};
}

// The other process: does all that the first one does.
[[noreturn]] void follow(const std::vector<std::string>& addresses, int commands) {
  std::unique_ptr<Workload> workload;
  BareStep step(worker_team(addresses, 1));
  std::string word;
  const auto next = [&] {
    word.clear();
    for (char c = 0; ::read(commands, &c, 1) == 1;) {
      if (c == '\n') return true;
      word += c;
    }
    return false;
  };
  while (next()) {
    if (word == "reset") {
      step.reset();
    } else if (word.starts_with("run ")) {
      step.run(std::stoll(word.substr(4)));
    } else {
      auto fresh = std::make_unique<Workload>(word);
      step.init(*fresh);
      workload = std::move(fresh);
    }
  }
  ::_exit(0);
}

/// The same step by two processes under MultiWorkerMirroredStrategy, one replica each.
class Workers : public Contender {
 public:
  Workers() {
    std::vector<std::string> addresses(2);
    {
      const internal::collectives::Socket first =
          internal::collectives::listen_on_free_port(addresses.data());
      const internal::collectives::Socket second =
          internal::collectives::listen_on_free_port(&addresses[1]);
    }
    std::array<int, 2> ends = {};
    COHORT_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe");
    commands_ = ends[1];
    if (::fork() == 0) {  // before either has threads
      ::close(ends[1]);
      follow(addresses, ends[0]);
    }
    ::close(ends[0]);
    step_ = std::make_unique<BareStep>(worker_team(addresses, 0));
  }
  void init(const Workload& workload) override {
    tell(workload.path());
    step_->init(workload);
  }
  void reset() override {
    tell("reset");
    step_->reset();
  }
  StepTime run(std::int64_t steps) override {
    tell(str_cat("run ", steps));
    return step_->run(steps);
  }

 private:
  void tell(const std::string& command) const {
    const std::string line = command + '\n';
    COHORT_CHECK(::write(commands_, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
                 "the other worker is gone");
  }
  int commands_ = -1;
  std::unique_ptr<BareStep> step_;
};

}  // namespace

std::unique_ptr<Contender> make_cohort_contender(bool alone) {
  return std::make_unique<BareStep>(alone);
}

std::unique_ptr<Contender> make_cohort_workers_contender() { return std::make_unique<Workers>(); }

std::unique_ptr<Contender> make_cohort_fit_contender() { return std::make_unique<Fit>(); }

}  // namespace cohort::bench
