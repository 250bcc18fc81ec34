// SPDX-License-Identifier: Apache-2.0
//
// SummaryWriter: writes what TensorBoard shows.
//
//   SummaryWriter writer("logs/run_1");
//   for (int step = 0; step < 100; ++step) writer.scalar("loss", 1.0 / (step + 1), step);
//   writer.histogram("weights", tensor({1.0, 2.0, 2.5}), 100);
//
// then `tensorboard --logdir logs`. keras/callbacks/tensorboard.h does it for fit.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort {

struct SummaryWriterOptions {
  /// What was logged this long ago or earlier is written to the file by the next call.
  std::chrono::milliseconds flush_every = std::chrono::seconds(10);
};

/// A hyperparameter of a run.
using HParam = std::variant<bool, double, std::string>;

/// One file of one run: a folder, whose path below TensorBoard's `--logdir` is the run's name. Each
/// writer makes a file of its own there. In a replica, replica 0 of all workers writes and the
/// others' calls do nothing; outside of replicas every caller writes.
/// Errors: Error with the system's text if the folder or the file cannot be made or written.
/// Threads: thread-safe.
/// TF: tf.summary.create_file_writer, with the functions of tf.summary as its methods.
class SummaryWriter {
 public:
  /// Makes the folder. The file is made by what is logged first.
  explicit SummaryWriter(std::string log_dir, SummaryWriterOptions options = {});
  SummaryWriter(SummaryWriter&&) noexcept;
  SummaryWriter& operator=(SummaryWriter&&) noexcept;
  /// Closes; an error is only logged.
  ~SummaryWriter();

  /// TF: tf.summary.scalar.
  void scalar(std::string_view tag, double value, int64_t step);
  /// How the elements are distributed, in `buckets` of equal width; NaN and infinities are left
  /// out. Errors: InvalidArgument for less than one bucket, or elements that are no numbers. TF:
  /// tf.summary.histogram.
  void histogram(std::string_view tag, const Tensor& values, int64_t step, int buckets = 30);
  /// Shapes: [images, height, width, channels], or one image without the first. 1 to 4 channels of
  ///         uint8, or of floats from 0 to 1 (what is beyond is cut off). The first `max_outputs`.
  /// Errors: InvalidArgument for other tensors.
  /// TF: tf.summary.image.
  void image(std::string_view tag, const Tensor& images, int64_t step, int max_outputs = 3);
  /// Markdown. TF: tf.summary.text.
  void text(std::string_view tag, std::string_view markdown, int64_t step);
  /// The values that this run was made with, once for each run. TF: hp.hparams of
  /// tensorboard.plugins.hparams.
  void hparams(const std::vector<std::pair<std::string, HParam>>& values);

  /// Writes all so far to the file.
  void flush();
  /// Errors: FailedPrecondition for what is logged after it.
  void close();

  const std::string& log_dir() const;

 private:
  struct State;
  State& use(const char* operation = __builtin_FUNCTION()) const;
  std::unique_ptr<State> state_;
};

}  // namespace cohort
