// SPDX-License-Identifier: Apache-2.0
//
// Where a fit is, and all but the model that it needs to go on from there as if it had never
// stopped: what fit lends BackupAndRestore; internal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/termination.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/callbacks/callback.h"
#include "cohort/variables/variable.h"

namespace cohort::internal::data {
class StateWriter;
}
namespace cohort::keras {
class Model;
}

namespace cohort::keras::internal {

class CompiledModel;
class InputStream;

/// When callbacks are shown it: after all callbacks' hooks of that moment.
enum class FitMoment {
  kBegin,      ///< Nothing has been done: may be set to where another fit was.
  kStepsEnd,   ///< Of an execution.
  kEpochEnd,   ///< It is at the next epoch, which has not begun.
  kPreempted,  ///< After one of those, or ahead of kEnd: somebody is about to end the process.
  kEnd,
};

/// Threads: bound to fit's.
class FitPosition {
 public:
  struct Parts {
    keras::Model& model;
    CompiledModel& compiled;
    InputStream& train;
    InputStream* validation = nullptr;  ///< Null: fit has none.
    const std::vector<keras::Callback>& callbacks;
  };
  explicit FitPosition(const Parts& parts) : parts_(parts) {}

  int epoch = 0;           ///< That runs, or comes next.
  int64_t step = 0;        ///< Steps of it that are done.
  bool has_begun = false;  ///< The epoch.
  bool is_over = false;    ///< Something has asked fit to stop.
  keras::Logs logs = {};   ///< Of the epoch's last step; empty: there was none.
  /// From now on fit ends by kPreempted when some worker gets SIGTERM.
  void watch_termination() {
    termination_ = std::make_unique<cohort::internal::base::TerminationSignal>();
  }
  /// What SIGTERM has asked for is being done: it does not come again when fit ends.
  void answer_termination() const {
    if (termination_) termination_->answer();
  }
  bool is_preempted() const { return termination_ && termination_->has_come(); }

  /// The workers that train; null: this process does alone.
  std::shared_ptr<cohort::internal::checkpoint::SavingGroup> group() const;
  /// For a Checkpoint beside the model: one value. What a restore sets comes into force by
  /// go_on().
  TrackableRef trackable();
  /// Goes to where the restored fit was, with its random numbers, and with the statistics and
  /// metrics that each replica keeps for itself; where there are other workers or replicas, with
  /// the sums of the running epoch's metrics over all of them. All workers call. Errors:
  /// InvalidArgument for other data, within an epoch for other steps of an epoch, and for another
  ///         number of workers where they read batches of their own.
  void go_on();

 private:
  struct Saved;
  std::string save_here() const;
  void write_logs(cohort::internal::data::StateWriter& out) const;
  std::string save();
  bool is_common() const;
  static bool was_common(std::span<const Saved> each);
  void restore_here(const Saved& saved, const Saved& chiefs);
  void check_steps(int64_t before) const;
  void restore_own(const Saved& saved);
  void restore_sums(const std::vector<Saved>& each);
  void with_metrics(std::function<void()> set);
  void resolve_metrics(const Saved& saved);
  void restore_logs(const Saved& saved);
  void restore_callbacks(const Saved& saved);
  std::vector<Variable> own_of_replicas() const;

  const Parts parts_;
  std::string restored_;
  std::unique_ptr<cohort::internal::base::TerminationSignal> termination_;
};

}  // namespace cohort::keras::internal
