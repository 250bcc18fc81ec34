// SPDX-License-Identifier: Apache-2.0
//
// CheckpointManager: numbered checkpoints of a run in one folder, the newest ones kept.
//
//   CheckpointManager manager(Checkpoint({{"model", model}, {"data", iterator}, {"step", &step}}),
//                             "run", {.max_to_keep = 3});
//   manager.restore_latest();                                 // false the first time
//   for (; step < steps; ++step) {
//     ...
//     if (step % 1000 == 999) manager.save();
//   }
//
// run/ckpt-7 is a Checkpoint's folder, run/checkpoint the text file by which TensorFlow names the
// newest. A crash at any moment leaves the checkpoint before, whole and named.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/checkpoint.h"

namespace cohort {

struct CheckpointManagerOptions {
  /// Older ones are removed; damaged ones are not counted. Unset: all are kept.
  std::optional<int> max_to_keep = 5;
  /// One checkpoint per such interval is kept, whatever max_to_keep says.
  /// TF: keep_checkpoint_every_n_hours.
  std::optional<std::chrono::seconds> keep_every = {};
  /// Managers of different names share a folder without touching each other's checkpoints.
  std::string checkpoint_name = "ckpt";
  /// True: save() copies the values and returns; a background thread writes them, of several
  /// workers the chief's.
  bool background = false;
};

/// A copy is the same manager. With objects of a strategy of several workers all workers call
/// save(), wait() and restore_latest(), each with a manager of its own: the chief's folder is used.
/// Independent processes may save into one folder and read there, even under one checkpoint_name:
/// every checkpoint is complete, and no two get the same number. Threads: one caller at
/// a time, as Checkpoint. TF: tf.train.CheckpointManager.
class CheckpointManager {
 public:
  /// The folder is made by the first save().
  /// Errors: InvalidArgument for max_to_keep below 1, an empty directory, a name with a '/'.
  CheckpointManager(Checkpoint checkpoint, std::string directory,
                    CheckpointManagerOptions options = {});

  /// Saves as "directory/name-number", by default with the number after the greatest one so far,
  /// the first being 1; numbers that are taken are skipped. A given number may replace a checkpoint
  /// that was there before this manager, or that it saved itself. Removes temporary files that
  /// killed processes left under this name. Returns the path.
  /// Blocks: until it is on the disk; in the background: until the one before is.
  /// Errors: as Checkpoint::save; Error kAlreadyExists for a given number that something else has;
  ///         kOutOfRange after the greatest number; DeadlineExceeded if another process that hangs
  ///         locks the folder. In the background what writing throws comes from the next save()
  ///         (which then saves nothing) or wait(); the last manager's end writes it to the log.
  std::string save(std::optional<int64_t> number = {});
  /// Blocks until nothing is being written. Errors: what writing threw.
  void wait();

  /// The newest one of this name; nullopt: none.
  std::optional<std::string> latest_checkpoint() const;
  /// All of this name in this process's folder, oldest first. TF: CheckpointManager.checkpoints.
  std::vector<std::string> checkpoints() const;
  /// Restores the newest of this name; false: there is none. One that is damaged, gone, or that the
  /// disk cannot read is passed over, with a warning that says which and why, for the one before.
  /// Errors: DataLoss if none can be read; others as Checkpoint::restore.
  bool restore_latest(const RestoreOptions& options = {}) const;

  const std::string& directory() const;
  /// From now on its checkpoints contain `object`, too, as `name`. Errors: as Checkpoint::with.
  void add(const std::string& name, const TrackableRef& object);
  /// Internal: as Checkpoint::group.
  std::shared_ptr<internal::checkpoint::SavingGroup> group(const char* operation) const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// The newest checkpoint that a manager has written into `directory`; nullopt: none. For processes
/// that watch a run. TF: tf.train.latest_checkpoint.
std::optional<std::string> latest_checkpoint(const std::string& directory);

}  // namespace cohort
