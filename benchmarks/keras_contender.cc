// SPDX-License-Identifier: Apache-2.0
#include "keras_contender.h"

#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/keras/callbacks/callback.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "keras_tasks.h"
#include "machine.h"
#include "pipe.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using keras::Verbose;

constexpr std::int64_t kPredictedRows = 60000;
constexpr std::int64_t kPredictBatch = 32;

std::int64_t nanoseconds_since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

// Times an epoch, as the peers' callback does.
struct EpochTime : keras::CallbackBase {
  void on_epoch_begin(int) override { start = Clock::now(); }
  void on_epoch_end(int, keras::Logs& logs) override {
    nanoseconds = nanoseconds_since(start);
    loss = logs.number("loss");
  }
  Clock::time_point start;
  std::int64_t nanoseconds = 0;
  double loss = 0;
};

class KerasContender {
 public:
  void init(const std::string& folder) {
    model_.reset();
    task_.emplace(folder);
    std::vector<Device> devices;
    for (int r = 0; r < task_->benchmark_case.replicas; ++r) {
      devices.emplace_back("CPU:" + std::to_string(r));
    }
    strategy_.emplace(MirroredStrategy(devices));
    reset();
    pin();
  }

  std::vector<double> curve(std::int64_t steps) {
    reset();
    const std::int64_t rows = task_->benchmark_case.global_batch();
    std::vector<double> losses;
    for (std::int64_t i = 0; i < steps; ++i) {
      losses.push_back(train(task_->rows().skip(i * rows).take(rows).batch(rows), 1).loss);
    }
    return losses;
  }

  std::int64_t run(std::int64_t steps) {
    return train(task_->rows().repeat().batch(task_->benchmark_case.global_batch()), steps)
        .nanoseconds;
  }

  double predict() {
    const Tensor& x = task_->inputs[0];
    if (!many_rows_.defined()) {
      const std::int64_t copies = kPredictedRows / x.size(0) + 1;
      const std::vector<Tensor> parts(static_cast<std::size_t>(copies), x);
      many_rows_ = concat(parts).narrow(0, 0, kPredictedRows);
    }
    const Tensor out =
        model_->predict(many_rows_, {.batch_size = kPredictBatch, .verbose = Verbose::kSilent});
    return out.abs().sum().item<double>();
  }

 private:
  void reset() {
    model_.reset();
    const Scope scope = strategy_->scope();
    model_ = keras::load_model(task_->model_file);
  }

  // Replica r trains on core r, as all contenders do.
  void pin() const {
    if (default_threads()) return;
    const std::vector<int> cores = contender_cores();
    strategy_->run([&] {
      const auto replica =
          static_cast<std::size_t>(get_replica_context().replica_id_in_sync_group());
      pin_to(cores[replica % cores.size()]);
    });
  }

  EpochTime train(const Dataset& data, std::int64_t steps) const {
    const auto clock = std::make_shared<EpochTime>();
    model_->fit(data,
                {.callbacks = {clock}, .verbose = Verbose::kSilent, .steps_per_epoch = steps});
    return *clock;
  }

  std::optional<KerasTask> task_;
  std::optional<Strategy> strategy_;
  std::shared_ptr<keras::Model> model_;
  Tensor many_rows_;
};

std::string answer_line(KerasContender& contender, const std::string& line) {
  std::istringstream words(line);
  std::string command, argument;
  words >> command >> argument;
  std::ostringstream out;
  out.precision(17);
  if (command == "init") {
    contender.init(argument);
    return {};
  }
  const std::int64_t count = std::stoll(argument);
  if (command == "curve") {
    for (const double loss : contender.curve(count)) out << ' ' << loss;
  } else if (command == "run") {
    out << contender.run(count);
  } else {
    COHORT_CHECK_ARG(command == "predict", "[keras_bench] unknown command ", command);
    const auto start = Clock::now();
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum = contender.predict();
    out << nanoseconds_since(start) << ' ' << sum;
  }
  return out.str();
}

}  // namespace

int serve_keras_contender() {
  KerasContender contender;
  return serve_lines("cohort",
                     [&](const std::string& line) { return answer_line(contender, line); });
}

}  // namespace cohort::bench
