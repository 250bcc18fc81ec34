// SPDX-License-Identifier: Apache-2.0
//
// The callback that shows progress; internal. fit, evaluate and predict add it after the user's.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/keras/callbacks/callback.h"
#include "cohort/keras/input_stream.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::keras::internal {

/// Threads: bound to one thread.
class ProgressLogger : public keras::CallbackBase {
 public:
  enum class Task { kFit, kEvaluate, kPredict };
  struct Options {
    Task task = Task::kFit;
    keras::Verbose verbose = keras::Verbose::kBar;  ///< Not kAuto.
    int epochs = 1;
    Console console = {};
    /// False: at the end only. Reading them between is something that all workers do together, and
    /// a bar is drawn when it is time to.
    bool values_between = true;
  };

  /// `input` outlives this.
  ProgressLogger(const InputStream& input, Options options);

  void on_epoch_begin(int epoch) override;
  void on_train_batch_begin(int64_t step) override;
  void on_train_batch_end(int64_t step, keras::Logs& logs) override;
  void on_epoch_end(int epoch, keras::Logs& logs) override;
  void on_test_begin() override;
  void on_test_batch_begin(int64_t step) override;
  void on_test_batch_end(int64_t step, keras::Logs& logs) override;
  void on_test_end(keras::Logs& logs) override;
  void on_predict_begin() override;
  void on_predict_batch_begin(int64_t step) override;
  void on_predict_batch_end(int64_t step) override;
  void on_predict_end() override;
  /// Takes the running line off the screen until the next hook: somebody else may print.
  void make_room();
  /// Ends a line that an exception or Ctrl-C left open.
  void close();

 private:
  void begin();
  void show_again();
  void show(int64_t step, const keras::Logs& logs);
  void finish(const keras::Logs& logs);

  const InputStream& input_;
  const Options options_;
  std::optional<ProgressBar> bar_;  // of this epoch
};

/// Leaves the cursor on a line of its own, whatever ended the loop.
class OpenLine {
 public:
  explicit OpenLine(ProgressLogger& progress) : progress_(progress) {}
  ~OpenLine() { progress_.close(); }
  OpenLine(const OpenLine&) = delete;
  OpenLine& operator=(const OpenLine&) = delete;

 private:
  ProgressLogger& progress_;
};

/// First in a list of callbacks whose last is the logger: makes room for what those between print.
class RoomMaker : public keras::CallbackBase {
 public:
  /// `progress` outlives this.
  RoomMaker(ProgressLogger& progress, CallbackList between)
      : progress_(progress), between_(std::move(between)) {}

  void on_train_batch_begin(int64_t) override { before_batch(); }
  void on_train_batch_end(int64_t, keras::Logs&) override { before_batch(); }
  void on_epoch_end(int, keras::Logs&) override { progress_.make_room(); }
  void on_test_begin() override { progress_.make_room(); }
  void on_test_batch_begin(int64_t) override { before_batch(); }
  void on_test_batch_end(int64_t, keras::Logs&) override { before_batch(); }
  void on_test_end(keras::Logs&) override { progress_.make_room(); }
  void on_predict_batch_begin(int64_t) override { before_batch(); }
  void on_predict_batch_end(int64_t) override { before_batch(); }
  void on_predict_end() override { progress_.make_room(); }

 private:
  void before_batch() {
    if (between_.may_print_in_batches()) progress_.make_room();
  }

  ProgressLogger& progress_;
  const CallbackList between_;
};

/// `user`, the history (if any) and the logger after them, and, if there are users, somebody who
/// makes room before them.
CallbackList with_progress(const std::vector<keras::Callback>& user, keras::Model& model,
                           const std::shared_ptr<ProgressLogger>& progress,
                           const std::shared_ptr<keras::CallbackBase>& history = nullptr);

}  // namespace cohort::keras::internal
