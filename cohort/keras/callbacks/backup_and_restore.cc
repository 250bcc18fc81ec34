// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/backup_and_restore.h"

#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/fork_locks.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/base/termination.h"
#include "cohort/base/write_guard.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/keras/fit_position.h"
#include "cohort/keras/model.h"

namespace cohort::keras {
namespace {

using internal::FitMoment;
using internal::FitPosition;

// Of this process, by folder.
constinit cohort::internal::base::Mutex g_fits_mutex;
[[maybe_unused]] const bool fits_kept_free =
    cohort::internal::base::keep_free_over_fork(g_fits_mutex);
std::map<std::string, int64_t>& fits_ended() COHORT_REQUIRES(g_fits_mutex) {
  static auto& all = *new std::map<std::string, int64_t>;
  return all;
}
int64_t fits_ended_in(const std::string& folder) {
  const cohort::internal::base::MutexLock lock(g_fits_mutex);
  return fits_ended()[folder];
}
void count_fit_ended_in(const std::string& folder) {
  const cohort::internal::base::MutexLock lock(g_fits_mutex);
  ++fits_ended()[folder];
}

class BackupAndRestoreBase : public CallbackBase {
 public:
  BackupAndRestoreBase(std::string backup_dir, BackupAndRestoreOptions options)
      : folder_(std::move(backup_dir)), options_(std::move(options)) {
    COHORT_CHECK_ARG(!folder_.empty(), "[backup_and_restore] expected a folder, got none");
    const bool saves = options_.save_freq.is_epoch() || options_.save_freq.steps() > 0;
    COHORT_CHECK_ARG(saves || options_.save_before_preemption,
                     "[backup_and_restore] either save_freq or save_before_preemption must be set: "
                     "expected save_freq = \"epoch\" or a number of steps, got 0");
    parent_ = std::exchange(folder_, folder_ + "/chief");
  }

  bool works_without_batches() const override { return options_.save_freq.steps() == 0; }
  void on_fit_position(FitPosition& position, FitMoment moment) override {
    switch (moment) {
      case FitMoment::kBegin:
        return begin(position);
      case FitMoment::kStepsEnd:
        return steps_ended(position);
      case FitMoment::kEpochEnd:
        if (options_.save_freq.is_epoch()) save();
        return;
      case FitMoment::kPreempted:
        return end_process(position);
      case FitMoment::kEnd:
        return end(position);
    }
  }

 private:
  void begin(FitPosition& position) {
    batches_ = saved_at_ = 0;
    fits_before_ = fits_ended_in(folder_);
    const int64_t here = fits_before_;
    manager_.emplace(
        Checkpoint(
            {{"model", model()}, {"fit", position.trackable()}, {"fits_before", &fits_before_}}),
        folder_, CheckpointManagerOptions{.max_to_keep = 1});
    if (manager_->restore_latest()) {
      check_own(here);
      position.go_on();
      COHORT_LOG(kInfo, "[backup_and_restore] going on from ", folder_, " at epoch ",
                 position.epoch + 1, ", step ", position.step);
    }
    last_step_ = position.step;
    if (options_.save_before_preemption) position.watch_termination();
  }

  // Where backups are deleted, an earlier fit of the program can find one of a later fit only if
  // that one was killed and the program has begun again.
  void check_own(int64_t here) {
    const int64_t then = std::exchange(fits_before_, here);
    COHORT_CHECK_STATE(then <= here || !options_.delete_checkpoint,
                       "[backup_and_restore] expected the backup in ", folder_,
                       " to be of this fit, the program's number ", here + 1,
                       " in that folder, got one of its number ", then + 1,
                       ", which would be lost: give each fit a folder of its own (and remove this "
                       "backup, or move it to that fit's)");
  }

  void steps_ended(const FitPosition& position) {
    // One execution may have run several.
    batches_ += position.step > last_step_ ? position.step - last_step_ : position.step;
    last_step_ = position.step;
    is_saved_ = false;
    const int64_t every = options_.save_freq.steps();
    if (every == 0 || batches_ < saved_at_ + every) return;
    saved_at_ = batches_;
    save();
  }

  void save() {
    manager_->save();
    is_saved_ = true;
  }

  void end_process(FitPosition& position) {
    if (!is_saved_) save();
    COHORT_LOG(kWarning, "[backup_and_restore] SIGTERM: saved to ", folder_, " at epoch ",
               position.epoch + 1, ", step ", position.step, "; ending");
    cohort::internal::checkpoint::leave_together(position.group().get());
    position.answer_termination();
    options_.exit_fn
        ? options_.exit_fn()
        : cohort::internal::base::exit_now(cohort::internal::base::kTerminatedExitCode);
    position.watch_termination();  // fit goes on, and the next SIGTERM is another one
  }

  void end(const FitPosition& position) {
    manager_.reset();
    count_fit_ended_in(folder_);
    if (!options_.delete_checkpoint) return;
    const auto group = position.group();
    cohort::internal::checkpoint::together(group.get(), "backup_and_restore", [&] {
      cohort::internal::checkpoint::on_chief(group.get(), [&] { remove_backup(); });
    });
  }

  void remove_backup() const {
    cohort::internal::base::check_may_write();
    // A name of its own first: who is killed meanwhile leaves no half of a backup.
    const std::string ended = folder_ + ".ended";
    std::error_code error;
    std::filesystem::remove_all(ended, error);
    std::filesystem::rename(folder_, ended, error);
    if (error == std::errc::no_such_file_or_directory) return;
    if (!error) std::filesystem::remove_all(ended, error);
    std::error_code not_empty;  // what else is there stays
    std::filesystem::remove(parent_, not_empty);
    if (!error) return;
    COHORT_LOG(kWarning, "[backup_and_restore] failed to remove ", folder_, ": ", error.message());
  }

  std::string folder_, parent_;
  const BackupAndRestoreOptions options_;
  std::optional<CheckpointManager> manager_;  // while fit runs
  int64_t last_step_ = 0;
  int64_t batches_ = 0;   // of this fit
  int64_t saved_at_ = 0;  // batches_
  bool is_saved_ = false;
  int64_t fits_before_ = 0;  // that have ended in this folder
};

}  // namespace

SaveFrequency::SaveFrequency(const char* name) {
  COHORT_CHECK_ARG(std::string_view(name) == "epoch",
                   "[backup_and_restore] expected save_freq to be \"epoch\" or a number of steps, "
                   "got \"",
                   name, "\"");
}

SaveFrequency::SaveFrequency(int64_t steps) : steps_(steps) {
  COHORT_CHECK_ARG(steps >= 0, "[backup_and_restore] expected save_freq >= 0, got ", steps);
}

BackupAndRestore::BackupAndRestore(std::string backup_dir, BackupAndRestoreOptions options) {
  callback_ = std::make_shared<BackupAndRestoreBase>(std::move(backup_dir), std::move(options));
}

}  // namespace cohort::keras
