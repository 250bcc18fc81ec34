// SPDX-License-Identifier: Apache-2.0
//
// What a pipeline report counts: a stage for every node whose streams are observed.
//
// Times are exclusive: a thread adds up what it spends in a stage's next, and takes off what inner
// stages and waits of it have noted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/data/core/pipeline_report.h"

namespace cohort::internal::data {

using cohort::data::NodeReport;
using cohort::data::PipelineReport;
class DatasetNode;

/// Counters of one node in one pass. Threads: thread-safe.
struct Stage {
  std::string name;
  std::string path;
  const DatasetNode* node = nullptr;
  Stage* parent = nullptr;  ///< Who reads it; null: the iterator.
  /// Of a dataset that a step opens while it reads: an interleave's, a window's, a file's. Its node
  /// is another one each time, which may be gone: the name counts.
  bool of_opened = false;
  std::vector<std::unique_ptr<Stage>> children;  ///< Guarded by the book.

  std::atomic<int64_t> elements{0};
  std::atomic<int64_t> own_ns{0};
  std::atomic<int64_t> waited_ns{0};
  std::atomic<int64_t> threads{0};
  std::atomic<int64_t> buffer_sum{0};
  std::atomic<int64_t> buffer_samples{0};
  std::atomic<int64_t> buffer_max{0};
  std::atomic<int64_t> buffer_capacity{0};

  void note_buffer(std::size_t ready, std::size_t capacity);
  void note_threads(std::size_t count);
};

/// The stages of a pass. Threads: thread-safe.
class StageBook {
 public:
  /// The stage of `node` where `parent` reads it.
  Stage& stage_of(const DatasetNode& node, Stage* parent);
  void note_next(std::chrono::steady_clock::time_point begin,
                 std::chrono::steady_clock::time_point end);
  PipelineReport report() const;

 private:
  mutable base::Mutex mutex_;
  Stage root_ COHORT_GUARDED_BY(mutex_);  ///< The iterator.
  std::chrono::steady_clock::time_point first_ COHORT_GUARDED_BY(mutex_){};
  std::chrono::steady_clock::time_point last_ COHORT_GUARDED_BY(mutex_){};
  std::chrono::nanoseconds waited_ COHORT_GUARDED_BY(mutex_){0};
};

/// The calling thread reads `stage` until the destructor. Null: does nothing.
class [[nodiscard]] StageTimer {
 public:
  explicit StageTimer(Stage* stage);
  ~StageTimer();
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  Stage* const stage_;
  Stage* before_ = nullptr;
  int64_t inner_before_ns_ = 0;
  std::chrono::steady_clock::time_point begin_{};
};

/// The calling thread does work of `stage` (kOwn), or only waits in it (kWait), until the
/// destructor. Null: does nothing.
class [[nodiscard]] WorkTimer {
 public:
  enum Kind { kOwn, kWait };
  WorkTimer(Stage* stage, Kind kind);
  ~WorkTimer();
  WorkTimer(const WorkTimer&) = delete;
  WorkTimer& operator=(const WorkTimer&) = delete;

 private:
  Stage* const stage_;
  const Kind kind_;
  int64_t inner_before_ns_ = 0;
  std::chrono::steady_clock::time_point begin_{};
};

/// Times one next of an iterator. Null: does nothing.
class [[nodiscard]] NextTimer {
 public:
  explicit NextTimer(StageBook* stages);
  ~NextTimer();
  NextTimer(const NextTimer&) = delete;
  NextTimer& operator=(const NextTimer&) = delete;

 private:
  StageBook* const stages_;
  std::chrono::steady_clock::time_point begin_{};
};

/// The stage that the calling thread reads or works for; null without a report.
Stage* current_stage();
/// Makes it this one; returns the one before.
Stage* exchange_stage(Stage* stage);

}  // namespace cohort::internal::data
