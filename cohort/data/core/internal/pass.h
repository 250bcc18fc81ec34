// SPDX-License-Identifier: Apache-2.0
//
// What the streams of one iterator share. Streams are made deep inside pipelines, also while these
// are read and on background threads; so the pass is a fact of the thread that works for it.
#pragma once

#include <exception>
#include <memory>
#include <stop_token>

#include <c10/core/GradMode.h>

#include "cohort/data/core/internal/consumer_wait.h"
#include "cohort/data/core/internal/core_budget.h"
#include "cohort/data/core/internal/stage.h"
#include "cohort/data/core/options.h"

namespace cohort::internal::data {

/// One pass over a pipeline. Threads: thread-safe.
class Pass : public std::enable_shared_from_this<Pass> {
 public:
  explicit Pass(const DataOptions& options);
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// The pass that this thread works for; outside of any, a new one with default options.
  static std::shared_ptr<Pass> current();

  const DataOptions& options() const { return options_; }

  /// Readers that wait for an element, here and on background threads, throw Cancelled.
  void cancel() { stop_.request_stop(); }
  std::stop_token stop() const { return stop_.get_token(); }
  /// Errors: Cancelled after cancel().
  void check() const;
  /// True if `error` says no more than that the pass was cancelled. A thread that reads ahead ends
  /// with it, and does not hand it over: it has no place among the elements, nor in a position.
  bool ended_by(const std::exception_ptr& error) const;

  /// Null without DataOptions::report.
  StageBook* stages() const { return stages_.get(); }
  CoreBudget& cores() { return cores_; }

 private:
  const DataOptions options_;
  const std::unique_ptr<StageBook> stages_;
  CoreBudget cores_;
  std::stop_source stop_;
};

/// For whatever elements come from, before it gives one: steps that leave elements out would else
/// go on for ever. Errors: Cancelled if the pass that this thread works for was cancelled.
void check_cancelled();

/// The step that the calling thread reads for; null: the iterator's reader.
std::shared_ptr<const ConsumerWait> current_consumer_wait();

/// The calling thread reads for this step until the destructor.
class [[nodiscard]] ConsumerWaitScope {
 public:
  explicit ConsumerWaitScope(std::shared_ptr<const ConsumerWait> consumer_wait);
  ~ConsumerWaitScope();
  ConsumerWaitScope(const ConsumerWaitScope&) = delete;
  ConsumerWaitScope& operator=(const ConsumerWaitScope&) = delete;

 private:
  std::shared_ptr<const ConsumerWait> before_;
};

/// The calling thread works for `pass`, and there for a stage, until the destructor. It records no
/// gradients: what functions of a pipeline return is data, whichever thread calls them.
class [[nodiscard]] PassScope {
 public:
  explicit PassScope(Pass* pass, Stage* stage = nullptr,
                     std::shared_ptr<const ConsumerWait> consumer_wait = {});
  ~PassScope();
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  Pass* const before_;
  Stage* const stage_before_;
  const ConsumerWaitScope consumer_wait_;
  const c10::AutoGradMode no_gradients_{false};
};

}  // namespace cohort::internal::data
