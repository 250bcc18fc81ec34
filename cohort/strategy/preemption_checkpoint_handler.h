// SPDX-License-Identifier: Apache-2.0
//
// PreemptionCheckpointHandler: a custom loop that saves and ends when its machine is taken away,
// and goes on when it is started again.
//
//   PreemptionCheckpointHandler handler(strategy.cluster_resolver(),
//                                       Checkpoint({{"model", model}, {"optimizer", optimizer},
//                                                   {"data", iterator}}),
//                                       "preempted");
//   while (handler.total_run_calls() < steps) {
//     handler.run([&] { strategy.run(train_step, iterator.get_next()); });
//   }
//   handler.save_checkpoint_if_preempted();   // SIGTERM may have come in the last run
//
// SIGTERM on any worker: all of them save together before the same run, and exit with status 143,
// after which Kubeflow's restart policy ExitCode starts them again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "cohort/checkpoint/checkpoint_manager.h"

namespace cohort {

class ClusterResolver;

/// TF: tf.distribute.experimental.TerminationConfig.
struct TerminationConfig {
  /// Called every second, by a thread: true if this machine is about to be preempted, as a cloud's
  /// metadata server says. Null: SIGTERM says it.
  std::function<bool()> termination_watcher_fn = {};
  /// Null: the process exits with 143, without destructors. One that returns lets the loop go on.
  std::function<void()> exit_fn = {};
  /// The loop saves at once, goes on for as long as that leaves the time for another save, and then
  /// saves again and ends. 0: it ends at once.
  std::chrono::milliseconds grace_period{0};
  /// Instead of saving the checkpoint.
  std::function<void()> save_fn = {};
};

/// With several workers each of them makes one, and all call run() or
/// save_checkpoint_if_preempted() equally often. A copy is the same handler. Threads: one caller at
/// a time, cross-replica. TF: tf.distribute.experimental.PreemptionCheckpointHandler.
class PreemptionCheckpointHandler {
 public:
  /// Restores the newest checkpoint in the folder, if there is one. The count of runs is kept in
  /// it, and in all that the manager saves from now on, as "total_run_calls". `cluster_resolver`
  /// may be null (texts use it). Errors: InvalidArgument for an empty folder; Unimplemented on a
  /// parameter server; as Checkpoint::restore.
  PreemptionCheckpointHandler(std::shared_ptr<ClusterResolver> cluster_resolver,
                              const Checkpoint& checkpoint, std::string checkpoint_dir,
                              TerminationConfig config = {});
  PreemptionCheckpointHandler(std::shared_ptr<ClusterResolver> cluster_resolver,
                              CheckpointManager manager, TerminationConfig config = {});

  /// save_checkpoint_if_preempted(), then fn(args...), which is counted.
  template <class Fn, class... A>
  std::invoke_result_t<const Fn&, A&&...> run(const Fn& fn, A&&... args) {
    save_checkpoint_if_preempted();
    if constexpr (std::is_void_v<std::invoke_result_t<const Fn&, A&&...>>) {
      fn(std::forward<A>(args)...);
      count_run();
    } else {
      auto result = fn(std::forward<A>(args)...);
      count_run();
      return result;
    }
  }

  /// For loops without run(): call it ahead of each step. If a worker is preempted, all save, and
  /// end. Cost: with several workers one small message to each.
  void save_checkpoint_if_preempted();
  /// Calls of run(), those before restarts too.
  int64_t total_run_calls() const;

 private:
  void count_run();

  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cohort
