// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/tensorboard.h"

#include <chrono>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/model.h"
#include "cohort/summary/summary_writer.h"

namespace cohort::keras {

namespace {

constexpr std::string_view kValidation = "val_";

// A run's folder, which is made when something is written. Every worker asks for values, which may
// take all of them; only the chief has a file.
class Run {
 public:
  explicit Run(std::string folder) : folder_(std::move(folder)) {}

  void begin(bool writes) { writes_ = writes; }
  SummaryWriter* writer() {
    if (writes_ && !writer_) writer_.emplace(folder_);
    return writer_ ? &*writer_ : nullptr;
  }
  void scalar(const std::string& tag, double value, int64_t step) {
    if (SummaryWriter* const to = writer()) to->scalar(tag, value, step);
  }
  void flush() {
    if (writer_) writer_->flush();
  }

 private:
  std::string folder_;
  bool writes_ = true;
  std::optional<SummaryWriter> writer_;
};

class TensorBoardBase final : public CallbackBase {
 public:
  TensorBoardBase(const std::string& log_dir, TensorBoardOptions options)
      : options_(options), train_(log_dir + "/train"), validation_(log_dir + "/validation") {
    COHORT_CHECK_ARG(options_.histogram_freq >= 0 && options_.update_freq >= 0,
                     "[tensorboard] expected histogram_freq >= 0 and update_freq >= 0, got ",
                     options_.histogram_freq, " and ", options_.update_freq);
  }

  void on_train_begin() override {
    steps_ = 0;
    fitting_ = true;
    begin_runs();
  }
  void on_train_end() override {
    fitting_ = false;
    train_.flush();
    validation_.flush();
  }

  void on_failure() override { on_train_end(); }

  void on_epoch_begin(int /*epoch*/) override {
    epoch_steps_ = steps_;
    epoch_began_ = Clock::now();
  }
  void on_epoch_end(int epoch, Logs& logs) override {
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const std::string& name = logs.name(i);
      const double value = logs.number(i);
      if (name.starts_with(kValidation)) {
        validation_.scalar("epoch_" + name.substr(kValidation.size()), value, epoch);
      } else {
        train_.scalar("epoch_" + name, value, epoch);
      }
    }
    if (!logs.contains("learning_rate")) {
      train_.scalar("epoch_learning_rate", model().optimizer().learning_rate(), epoch);
    }
    if (options_.write_steps_per_second) {
      train_.scalar("epoch_steps_per_second", rate(steps_ - epoch_steps_, epoch_began_), epoch);
    }
    if (options_.histogram_freq > 0 && epoch % options_.histogram_freq == 0) histograms(epoch);
    train_.flush();
    validation_.flush();
  }

  bool works_without_batches() const override { return !counts_steps(); }
  void on_train_batch_begin(int64_t step) override {
    if (!counts_steps()) return CallbackBase::on_train_batch_begin(step);
    first_ = step;
    step_began_ = Clock::now();
  }
  void on_train_batch_end(int64_t step, Logs& logs) override {
    if (!counts_steps()) return CallbackBase::on_train_batch_end(step, logs);
    const int64_t before = steps_;
    steps_ += step - first_ + 1;
    const int64_t every = options_.update_freq;
    // An execution of several steps is shown if one of them is to be.
    if (every == 0 || steps_ / every == before / every) return;
    for (std::size_t i = 0; i < logs.size(); ++i) {
      train_.scalar("batch_" + logs.name(i), logs.number(i), steps_);
    }
    if (options_.write_steps_per_second) {
      train_.scalar("batch_steps_per_second", rate(steps_ - before, step_began_), steps_);
    }
  }

  void on_test_end(Logs& logs) override {
    if (fitting_) return;
    begin_runs();
    const int64_t updates = model().optimizer().iterations().value().item<int64_t>();
    for (std::size_t i = 0; i < logs.size(); ++i) {
      validation_.scalar("evaluation_" + logs.name(i) + "_vs_iterations", logs.number(i), updates);
    }
    validation_.flush();
  }

  std::string save_state() override {
    cohort::internal::data::StateWriter out;
    out.put_int(steps_);
    return std::move(out).take();
  }
  void restore_state(std::string_view state) override {
    cohort::internal::data::StateReader in(state);
    steps_ = in.get_int();
    in.expect_end();
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double rate(int64_t steps, Clock::time_point since) {
    return static_cast<double>(steps) / std::chrono::duration<double>(Clock::now() - since).count();
  }

  bool counts_steps() const { return options_.update_freq > 0 || options_.write_steps_per_second; }

  void begin_runs() {
    const bool writes = model().strategy().extended().should_save_summary();
    train_.begin(writes);
    validation_.begin(writes);
  }

  void histograms(int epoch) {
    for (const auto& [path, weight] : model().weight_names()) {
      const Tensor value = weight.value();
      if (SummaryWriter* const to = train_.writer())
        to->histogram(path + "/histogram", value, epoch);
    }
  }

  const TensorBoardOptions options_;
  Run train_, validation_;
  bool fitting_ = false;
  int64_t steps_ = 0;  // of all epochs
  int64_t first_ = 0;  // of the execution
  int64_t epoch_steps_ = 0;
  Clock::time_point epoch_began_, step_began_;
};

}  // namespace

TensorBoard::TensorBoard(std::string log_dir, TensorBoardOptions options)
    : Callback(std::make_shared<TensorBoardBase>(log_dir, options)) {}

}  // namespace cohort::keras
