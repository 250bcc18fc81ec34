// SPDX-License-Identifier: Apache-2.0
//
// Training steps that are recorded and started again (runtime/step_recording.h); internal.
//
// What fit and train_on_batch do with a compiled model whose one replica works on a device that can
// record: the first batches of a shape are trained on operation by operation, by which everything
// is made that lasts (weights, slots, plans and workspaces of the device's libraries). Then the
// step's code runs once more to be recorded, with tensors of its own for the batch, and from then
// on a step of that shape is: copy the batch there, ask the values that change, start the
// recording, do what the code would have changed on the host. It computes the same bits.
//
// Recordings hold addresses. Weights, slots and statistics stay where they are as long as they
// live, whoever assigns or restores them; what would move them (a layer that gets weights, is
// frozen or thawed, see structure_version()) drops all recordings, and compile() makes a new
// StepCapture. Gradients go to a buffer that is reserved for recordings
// (variables/gradient_lease.h). What a step returned of tensors, kept by the program or not, are
// copies.
//
// Steps are not recorded, with one line in the log that says why, where there are several replicas
// or workers; where model, layer, loss or metric is a class or a function of the program, which may
// do on the host what only its code knows (unless compile() was told jit_compile = true); and where
// something refuses: host reads, norms, rows of tables, loss scaling, ... A recording that fails
// has changed nothing, and the step is made by hand.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/core/element.h"
#include "cohort/keras/callbacks/logs.h"
#include "cohort/keras/compile_options.h"
#include "cohort/runtime/step_recorder.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/strategy/replica_step.h"
#include "cohort/strategy/strategy.h"

namespace cohort::keras {
class Model;
}

namespace cohort::keras::internal {

class CompiledModel;

/// Threads: step() bound to the replica's thread in a run; a second thread at the same time makes
/// its step operation by operation.
class StepCapture {
 public:
  /// Of a strategy whose devices record nothing it is off from the beginning.
  static std::shared_ptr<StepCapture> make(const Strategy& strategy,
                                           const keras::CompileOptions& options);
  ~StepCapture();
  StepCapture(const StepCapture&) = delete;
  StepCapture& operator=(const StepCapture&) = delete;

  bool is_off() const { return off_.load(std::memory_order_relaxed); }
  /// model.train_step(batch), one way or the other. Order: `step` is the calling thread's.
  /// Errors: what train_step throws; FailedPrecondition where compile() demands recordings
  ///         (jit_compile = true) and there can be none.
  keras::Logs step(keras::Model& model, CompiledModel& compiled,
                   cohort::internal::strategy::ReplicaStep& step, const Element& batch);

 private:
  using Shapes = std::vector<int64_t>;
  struct Recording;
  struct Known;  // a shape of batches
  /// What a step is given and writes to.
  struct Call {
    keras::Model& model;
    CompiledModel& compiled;
    cohort::internal::strategy::ReplicaStep& step;
    const Element& batch;
  };

  StepCapture(const Strategy& strategy, const keras::CompileOptions& options);
  keras::Logs step_here(const Call& call);
  /// Why steps cannot be recorded; empty: they may.
  std::string reason_against(const Call& call) const;
  /// That of batches of this shape, now the first.
  Known& find(Shapes shapes);
  /// Null, with why.
  std::unique_ptr<Recording> record(const Call& call, std::string& why);
  keras::Logs start(const Call& call, Recording& recording);
  void turn_off(const std::string& why, const keras::Model& model);
  void drop_if_layers_changed();

  const Device device_;
  const c10::Device place_;  // where LibTorch has the device's tensors
  cohort::internal::runtime::StepRecorder* const recorder_;
  const bool must_;   // or it is an error
  const bool alone_;  // one replica of one worker
  std::atomic<bool> off_{false};
  std::atomic<bool> busy_{false};
  uint64_t structure_ = 0;
  int dropped_ = 0;  // recordings, for other shapes
  cohort::internal::runtime::RecordingStore store_;
  std::shared_ptr<cohort::internal::runtime::RecordingMemory> memory_;
  std::vector<std::unique_ptr<Known>> known_;  // the last used first
};

}  // namespace cohort::keras::internal
