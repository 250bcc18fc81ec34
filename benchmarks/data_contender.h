// SPDX-License-Identifier: Apache-2.0
//
// Cohort's side of data_bench: pipelines as a user writes them, and what bounds them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace cohort::bench {

/// A pipeline that can be asked for batches without end. Threads: used by one thread.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Opens and closes what reads: nothing runs, or is read ahead, between two samples.
  virtual void begin() {}
  virtual void end() {}
  /// Reads `count` batches to the last value, between begin and end.
  virtual void read(std::int64_t count) = 0;
  /// Of one pass: how many rows, and the sum of all values and of all bytes of strings. Ways with
  /// the same work have the same.
  struct Pass {
    std::int64_t rows = 0;
    double sum = 0;
  };
  virtual Pass pass() const = 0;
};

/// The ways to do a case of data_bench, by name: "cohort" is the subject.
using BatchSources = std::map<std::string, std::unique_ptr<BatchSource>>;
BatchSources open_case(const std::string& name, std::int64_t batch, const std::string& folder,
                       const std::string& images);

/// Read before the clock starts, at least: what is tuned while it runs needs a while.
inline constexpr std::int64_t kWarmUpBatches = 16;
inline constexpr std::chrono::milliseconds kWarmUp{150};

/// Answers data_bench on standard input and output:
///   open <case> <batch> <folder> <images>   -> ok <names of ways>
///   check <way>                             -> ok <rows> <sum>, of one pass
///   run <way> <batches>                     -> ok <nanoseconds>, of a fresh iterator that is warm
int serve_data();

}  // namespace cohort::bench
