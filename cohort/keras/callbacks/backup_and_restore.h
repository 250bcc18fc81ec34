// SPDX-License-Identifier: Apache-2.0
//
// BackupAndRestore: a fit that was killed goes on where it was when the program is started again.
//
//   model.fit(train.shuffle(60000).batch(128),
//             {.epochs = 10, .callbacks = {keras::BackupAndRestore("backup")}});
//
// Kept are the model with its optimizer, the epoch and step, the position in the data, random
// numbers, metrics, and what the fit's callbacks say that they need. So a fit that was killed, at
// any moment, however often, ends with the same bits as one that never was: same program, same
// seed, same number of replicas. (On another number of replicas it goes on, too, with the same
// rows, if workers do not read batches of their own.)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

/// "epoch": at the end of each; a number: after so many steps, counted over all epochs; 0: never,
/// but before a preemption.
class SaveFrequency {
 public:
  /// Errors: InvalidArgument for other text.
  SaveFrequency(const char* name);  // NOLINT: implicit by design
  /// Errors: InvalidArgument below 0.
  SaveFrequency(int64_t steps);                                // NOLINT
  SaveFrequency(int steps) : SaveFrequency(int64_t{steps}) {}  // NOLINT

  bool is_epoch() const { return steps_ < 0; }
  /// 0: never.
  int64_t steps() const { return steps_ < 0 ? 0 : steps_; }

 private:
  int64_t steps_ = -1;
};

struct BackupAndRestoreOptions {
  SaveFrequency save_freq = "epoch";
  /// When fit has ended: nothing is left for the next fit to go on from.
  bool delete_checkpoint = true;
  /// Watches SIGTERM while fit runs: when any worker got one, all save after the same step and end
  /// by exit_fn. A SIGTERM that comes too late, when fit is over, is raised again.
  bool save_before_preemption = false;
  /// Null: the process exits with 143, which Kubeflow's policy ExitCode restarts. One that
  /// returns lets fit go on.
  std::function<void()> exit_fn = {};
};

/// Writes `backup_dir`/chief, of several workers on the chief, whose disk the next start has to
/// have, too. fit's initial_epoch does not count where there is a backup. With gradient
/// accumulation a backup between two updates has one sum for all replicas, which rounds.
/// TF: tf.keras.callbacks.BackupAndRestore, which starts the data anew.
class BackupAndRestore : public Callback {
 public:
  /// Errors: InvalidArgument for an empty path, and for save_freq 0 without
  ///         save_before_preemption. fit throws what Checkpoint::save and restore do, and
  ///         InvalidArgument for a backup of another model or data, and within an epoch for another
  ///         steps_per_epoch; FailedPrecondition where fits of a program share a folder, for a
  ///         backup of a later one.
  explicit BackupAndRestore(std::string backup_dir, BackupAndRestoreOptions options = {});
};

}  // namespace cohort::keras
