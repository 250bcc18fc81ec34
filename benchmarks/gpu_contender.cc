// SPDX-License-Identifier: Apache-2.0
#include "gpu_contender.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/zeros_like.h>

#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/check.h"
#include "cohort/keras/callbacks/callback.h"
#include "cohort/strategy/strategies.h"
#include "gpu_tasks.h"
#include "gpu_update.h"
#include "pipe.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using keras::Verbose;

constexpr std::int64_t kUpdated = std::int64_t{1} << 26;  // weights; 256 MB

std::int64_t nanoseconds_since(Clock::time_point start) {
  return std::chrono::nanoseconds(Clock::now() - start).count();
}

struct StepsTime {
  std::int64_t nanoseconds = 0;
  std::int64_t host = 0;  ///< Of them, until the last step was started; 0: not known.
  double loss = 0;        ///< Of the last step, or their mean.
};

// Ends an epoch's time when the device has done what it was given.
struct EpochTime : keras::CallbackBase {
  explicit EpochTime(std::function<void()> wait) : wait_(std::move(wait)) {}
  void on_epoch_begin(int) override { start_ = Clock::now(); }
  void on_epoch_end(int, keras::Logs& logs) override {
    wait_();
    time.nanoseconds = nanoseconds_since(start_);
    time.loss = logs.number("loss");
  }
  StepsTime time;

 private:
  const std::function<void()> wait_;
  Clock::time_point start_;
};

// Steps that are captured, or an error that says why not; or none.
template <class Options>
void demand_capture(Options& options, bool wanted) {
  if constexpr (requires { options.jit_compile = wanted; }) {
    options.jit_compile = wanted;
  } else {
    COHORT_CHECK_ARG(!wanted, "[gpu_bench] this build cannot capture a step");
  }
}

class GpuContender {
 public:
  GpuContender(std::string kind, const std::string& device)
      : kind_(std::move(kind)), device_(device) {}

  void init(const std::string& folder) {
    drop();
    strategy_.emplace(OneDeviceStrategy(device_));
    files_.emplace(folder);
    // As the peers have it: the precision of products is the task's, convolutions are tried out.
    const bool tf32 = files_->precision == "tf32";
    at::globalContext().setAllowTF32CuBLAS(tf32);
    at::globalContext().setAllowTF32CuDNN(tf32);
    at::globalContext().setBenchmarkCuDNN(true);
    if (kind_ != "fit_host") put_batches_on_device();
    reset();
  }

  std::vector<double> curve(std::int64_t steps) {
    reset();
    std::vector<double> losses;
    for (std::int64_t i = 0; i < steps; ++i) {
      losses.push_back(uses_fit() ? fit(batch_alone(i), 1).loss : loop(1).loss);
    }
    return losses;
  }

  StepsTime run(std::int64_t steps) { return uses_fit() ? fit(all_batches(), steps) : loop(steps); }

  /// Gbyte/s that Adam's update of one large variable moves, and a copy within the device.
  std::pair<double, double> update_speed(std::int64_t steps) {
    drop();
    if (is_gpu()) {  // the kernel alone: a step would copy a gradient of no tape into the arena
      const UpdateBandwidth on_gpu = measure_update(device_, kUpdated, static_cast<int>(steps));
      return {on_gpu.update_gbytes, on_gpu.copy_gbytes};
    }
    strategy_.emplace(OneDeviceStrategy(device_));
    const std::int64_t size = kUpdated / 64;
    const Scope scope = strategy_->scope();
    const Variable weights(ones({size}), {.name = "weights"});
    const keras::Optimizer optimizer = keras::Adam();
    const Tensor gradient = ones({size}).to(device_.at_device());
    const Gradients gradients = {{gradient, weights}};
    const double update_us =
        time_of(steps, [&] { strategy_->run([&] { optimizer.apply_gradients(gradients); }); });
    // As many bytes: a step reads weight, gradient and two moments, and writes all but the
    // gradient.
    Tensor copy = gradient.new_empty({7 * size / 2});
    const Tensor source = at::zeros_like(copy);
    const double copy_us = time_of(steps, [&] { copy.copy_(source); });
    const double gbytes = 7.0 * 4 * static_cast<double>(size) / 1e3;
    return {gbytes / update_us, gbytes / copy_us};
  }

  // LibTorch remembers that there is no GPU if it is asked before a strategy has brought one.
  void drop() {
    const bool had_worked = strategy_.has_value();
    model_.reset();
    batches_.clear();
    files_.reset();
    strategy_.reset();
    if (is_gpu() && had_worked) at::accelerator::emptyCache();
  }

 private:
  struct Batch {
    Element x;
    Tensor y;
  };

  bool is_gpu() const { return device_.kind() == DeviceKind::kGpu; }
  bool uses_fit() const { return kind_ != "eager"; }

  void wait() const {
    if (is_gpu()) at::accelerator::synchronizeDevice(device_.at_device().index());
  }

  // Of one, in us, after as many that warm up.
  template <class Work>
  double time_of(std::int64_t steps, const Work& work) const {
    for (std::int64_t i = 0; i < steps; ++i) work();
    wait();
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < steps; ++i) work();
    wait();
    return static_cast<double>(nanoseconds_since(start)) / 1e3 / static_cast<double>(steps);
  }

  Tensor on_device(const Tensor& rows, std::int64_t batch) const {
    return files_->batch_of(rows, batch).to(device_.at_device());
  }

  void put_batches_on_device() {
    for (std::int64_t i = 0; i < files_->batches; ++i) {
      std::vector<Element> parts;
      for (const Tensor& rows : files_->inputs) parts.emplace_back(on_device(rows, i));
      Element x = parts.size() == 1 ? parts[0] : Element::tuple(std::move(parts));
      batches_.push_back({std::move(x), on_device(files_->labels, i)});
    }
    wait();
  }

  void reset() {
    model_.reset();
    const Scope scope = strategy_->scope();
    model_ = keras::load_model(files_->model_file);
    if (kind_ == "captured" || kind_ == "fit_eager") {
      keras::CompileOptions options = {
          .optimizer = model_->optimizer(),
          .loss = keras::SparseCategoricalCrossentropy({.from_logits = true})};
      demand_capture(options, kind_ == "captured");
      model_->compile(options);
    }
    next_ = 0;
  }

  Tensor step(const Batch& batch) const {
    const keras::SparseCategoricalCrossentropy loss_function(
        {.from_logits = true, .reduction = keras::Reduction::kSum});
    GradientTape tape;
    const keras::CallArgs args{.training = true};
    const Tensor prediction =
        batch.x.is_tensor() ? (*model_)(batch.x.tensor(), args) : (*model_)(batch.x, args).tensor();
    Tensor loss =
        loss_function.reduced(batch.y, prediction, {}, 1.0 / static_cast<double>(files_->batch));
    model_->optimizer().apply_gradients(tape.gradient(loss, model_->trainable_variables()));
    return loss;
  }

  StepsTime loop(std::int64_t steps) {
    PerReplica<Tensor> loss;
    StepsTime time;
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < steps; ++i, ++next_) {
      const Batch& batch = batches_[static_cast<std::size_t>(next_ % files_->batches)];
      loss = strategy_->run([&] { return step(batch); });
    }
    time.host = nanoseconds_since(start);
    wait();
    time.nanoseconds = nanoseconds_since(start);
    time.loss = strategy_->reduce(ReduceOp::kSum, loss).item().toDouble();
    return time;
  }

  Dataset batch_alone(std::int64_t i) const {
    const std::int64_t place = i % files_->batches;
    if (kind_ == "fit_host") {
      return files_->rows().skip(place * files_->batch).take(files_->batch).batch(files_->batch);
    }
    const Batch& batch = batches_[static_cast<std::size_t>(place)];
    return Dataset::from_tensors(Element{batch.x, batch.y});
  }

  Dataset all_batches() const {
    if (kind_ == "fit_host") return files_->rows().repeat().batch(files_->batch).prefetch();
    std::vector<Element> elements;
    for (const Batch& batch : batches_) elements.push_back(Element{batch.x, batch.y});
    return Dataset::from_range(std::move(elements)).repeat();
  }

  StepsTime fit(const Dataset& data, std::int64_t steps) const {
    const auto clock = std::make_shared<EpochTime>([this] { wait(); });
    model_->fit(data,
                {.callbacks = {clock}, .verbose = Verbose::kSilent, .steps_per_epoch = steps});
    return clock->time;
  }

  const std::string kind_;
  const Device device_;
  std::optional<Strategy> strategy_;
  std::optional<GpuTaskFiles> files_;
  std::vector<Batch> batches_;
  std::shared_ptr<keras::Model> model_;
  std::int64_t next_ = 0;
};

std::string answer_line(GpuContender& contender, const std::string& line) {
  std::istringstream words(line);
  std::string command, argument;
  words >> command >> argument;
  std::ostringstream out;
  out.precision(17);
  if (command == "init") {
    contender.init(argument);
  } else if (command == "drop") {
    contender.drop();
  } else if (command == "curve") {
    for (const double loss : contender.curve(std::stoll(argument))) out << ' ' << loss;
  } else if (command == "update") {
    const auto [update, copy] = contender.update_speed(std::stoll(argument));
    out << update << ' ' << copy;
  } else {
    COHORT_CHECK_ARG(command == "run", "[gpu_bench] unknown command ", command);
    const StepsTime time = contender.run(std::stoll(argument));
    out << time.nanoseconds << ' ' << time.host;
  }
  return out.str();
}

}  // namespace

int serve_gpu_contender(const std::string& kind, const std::string& device) {
  GpuContender contender(kind, device);
  return serve_lines("cohort",
                     [&](const std::string& line) { return answer_line(contender, line); });
}

}  // namespace cohort::bench
