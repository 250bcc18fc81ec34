// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/progress_logger.h"

#include <algorithm>

#include "cohort/base/strings.h"

namespace cohort::keras::internal {

using keras::Logs;
using keras::Verbose;

ProgressLogger::ProgressLogger(const InputStream& input, Options options)
    : input_(input), options_(std::move(options)) {}

void ProgressLogger::begin() {
  bar_.emplace(ProgressBarOptions{.target = input_.steps(),
                                  .verbose = options_.verbose,
                                  .console = options_.console,
                                  .terminal = options_.console.write ? Terminal() : terminal()});
}

void ProgressLogger::make_room() {
  if (bar_) bar_->hide();
}

void ProgressLogger::show_again() {
  if (bar_) bar_->show_again();
}

void ProgressLogger::show(int64_t step, const Logs& logs) {
  bar_->update(step + 1, options_.values_between ? logs : Logs(), ProgressBar::Kind::kRunning);
}

void ProgressLogger::finish(const Logs& logs) {
  const bool whole = bar_->has_target() && !input_.ran_out();
  const int64_t steps = whole ? *input_.steps() : input_.steps_taken();
  bar_->set_target(steps);
  bar_->update(steps, logs, ProgressBar::Kind::kFinal);
}

void ProgressLogger::close() {
  if (bar_) bar_->close();
}

void ProgressLogger::on_epoch_begin(int epoch) {
  if (options_.task != Task::kFit) return;
  if (options_.epochs > 1 && options_.verbose != Verbose::kSilent) {
    const std::string text = str_cat("Epoch ", epoch + 1, "/", options_.epochs, "\n");
    options_.console.write ? options_.console.write(text) : print_out(text);
  }
  begin();
}
void ProgressLogger::on_train_batch_begin(int64_t) { show_again(); }
void ProgressLogger::on_train_batch_end(int64_t step, Logs& logs) { show(step, logs); }
void ProgressLogger::on_epoch_end(int, Logs& logs) { finish(logs); }

// Inside fit the validation's hooks come as well; its numbers end the epoch's own line.
void ProgressLogger::on_test_begin() { options_.task == Task::kEvaluate ? begin() : show_again(); }
void ProgressLogger::on_test_batch_begin(int64_t) { show_again(); }
void ProgressLogger::on_test_batch_end(int64_t step, Logs& logs) {
  options_.task == Task::kEvaluate ? show(step, logs) : show_again();
}
void ProgressLogger::on_test_end(Logs& logs) {
  options_.task == Task::kEvaluate ? finish(logs) : show_again();
}

void ProgressLogger::on_predict_begin() { begin(); }
void ProgressLogger::on_predict_batch_begin(int64_t) { show_again(); }
void ProgressLogger::on_predict_batch_end(int64_t step) { show(step, {}); }
void ProgressLogger::on_predict_end() { finish({}); }

CallbackList with_progress(const std::vector<keras::Callback>& user, keras::Model& model,
                           const std::shared_ptr<ProgressLogger>& progress,
                           const std::shared_ptr<keras::CallbackBase>& history) {
  CallbackList all;
  if (!user.empty()) {
    all.add(std::make_shared<RoomMaker>(*progress, CallbackList(user, model)), model);
  }
  for (const keras::Callback& callback : user) all.add(callback, model);
  if (history != nullptr) all.add(history, model);
  all.add(progress, model);
  return all;
}

}  // namespace cohort::keras::internal
