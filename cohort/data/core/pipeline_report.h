// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a pipeline goes.
//
//   DataOptions options = train.options();
//   options.report = true;
//   Iterator it = train.with_options(options).make_iterator();
//   while (it.next()) { ... }
//   std::cout << it.report().to_string();
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::data {

/// One step of a pipeline. Steps that only move row numbers are part of the step that reads the
/// rows; the datasets of an interleave count together.
struct NodeReport {
  std::string name = {};  ///< "map".
  std::string path =
      {};         ///< "range.map"; "range.interleave > tf_records.map" inside an interleave.
  int depth = 0;  ///< Steps between it and the reader.
  int64_t elements = 0;
  /// In the step itself, summed over threads: its function, its file, gathering its rows.
  std::chrono::nanoseconds own{0};
  /// Whoever reads it spent this in its next(): waiting, or computing on the reader's own thread.
  std::chrono::nanoseconds waited{0};
  int threads = 0;              ///< Background threads of its own, at most at one time.
  double buffer_mean = 0;       ///< Elements ready when the reader asked.
  int64_t buffer_max = 0;       ///< The most of them.
  int64_t buffer_capacity = 0;  ///< 0: no buffer.
};

/// Threads: thread-compatible.
struct PipelineReport {
  std::vector<NodeReport> nodes = {};  ///< The last step first, then what it reads.
  /// From the first next() to the end of the last one, and what of it the reader spent in next().
  std::chrono::nanoseconds elapsed{0};
  std::chrono::nanoseconds waited{0};
  /// Index in `nodes` of the step that slows the reader down most; -1: the reader spends less
  /// than a twentieth of its time in next(), so the pipeline is fast enough.
  int bottleneck = -1;

  /// A table with one line for every step, the bottleneck marked.
  std::string to_string() const;
};

}  // namespace cohort::data
