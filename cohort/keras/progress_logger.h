// SPDX-License-Identifier: Apache-2.0
//
// The callback that shows progress; internal. fit, evaluate and predict add it after the user's.
#pragma once

#include <optional>

#include "cohort/keras/callbacks/callback.h"
#include "cohort/keras/input_stream.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::internal {

/// Threads: bound to one thread.
class ProgressLogger : public keras::CallbackBase {
 public:
  enum class Task { kFit, kEvaluate, kPredict };
  struct Options {
    Task task = Task::kFit;
    keras::Verbose verbose = keras::Verbose::kBar;  ///< Not kAuto.
    int epochs = 1;
    Console console = {};
  };

  /// `input` outlives this.
  ProgressLogger(const InputStream& input, Options options);

  void on_epoch_begin(int epoch) override;
  void on_train_batch_end(int64_t step, keras::Logs& logs) override;
  void on_epoch_end(int epoch, keras::Logs& logs) override;
  void on_test_begin() override;
  void on_test_batch_end(int64_t step, keras::Logs& logs) override;
  void on_test_end(keras::Logs& logs) override;
  void on_predict_begin() override;
  void on_predict_batch_end(int64_t step) override;
  void on_predict_end() override;
  /// Ends a line that an exception or Ctrl-C left open.
  void close();

 private:
  void begin();
  void show(int64_t step, const keras::Logs& logs);
  void finish(const keras::Logs& logs);

  const InputStream& input_;
  const Options options_;
  std::optional<ProgressBar> bar_;  // of this epoch
};

}  // namespace cohort::internal
