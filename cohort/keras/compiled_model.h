// SPDX-License-Identifier: Apache-2.0
//
// What compile() leaves in a model; internal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cohort/keras/callbacks/logs.h"
#include "cohort/keras/compile_options.h"
#include "cohort/runtime/thread_context.h"
#include "cohort/strategy/replica_step.h"
#include "cohort/strategy/strategy.h"

namespace cohort::keras::internal {

class StepCapture;

/// The metric "loss": a mean over all examples since the last reset, over all replicas.
class LossTracker {
 public:
  LossTracker();

  /// In a replica: adds weight * loss to the total and `count` examples, unless the step fails.
  void add(const Tensor& detached_loss, double weight, int64_t count);
  Tensor result() const;
  /// False once a NaN or an infinity was added on any replica. Between steps. Cost: a few loads; of
  /// devices it blocks until they are as far.
  bool is_finite() const;
  /// Whether is_finite() waits for no device.
  bool is_on_host() const;
  void reset() const;
  std::vector<Variable> variables() const { return {total_, count_}; }

 private:
  Variable total_;  // float64: an epoch has many small summands
  Variable count_;
};

/// How a logged value came of the shares of a loss.
enum class FromShares {
  kNot,    ///< Not that its graph says.
  kSum,    ///< A sum, difference or multiple of shares: a share itself.
  kOther,  ///< In a way that makes no share of it, e.g. its square.
};

/// A replica's step, and what it logged. Threads: as ReplicaStep.
struct alignas(64) LoggedStep : cohort::internal::strategy::ReplicaStep {
  keras::Logs logs;                     ///< What the step returned.
  std::vector<FromShares> from_shares;  ///< [i] What logs' i-th value is; see settle().
  /// Which metrics steps have updated so far: not only those of compile().
  std::vector<keras::Metric> updated;
};

/// Makes `step` the calling thread's for its lifetime.
class [[nodiscard]] RunningStep {
 public:
  explicit RunningStep(cohort::internal::strategy::ReplicaStep& step);

 private:
  cohort::internal::runtime::ContextFrame frame_;
};

/// What compile() said of one of several outputs.
struct CompiledOutput {
  std::string name;
  keras::Loss loss;
  double weight = 1;
  std::vector<keras::Metric> metrics, weighted_metrics;
  std::optional<LossTracker> tracker = {};  ///< "name_loss"; of an output with a loss.
};

class CompiledModel {
 public:
  /// `outputs`: the names of several, where they are known.
  /// Errors: InvalidArgument as Model::compile.
  CompiledModel(keras::CompileOptions compile_options, const Strategy& strategy,
                const std::vector<std::string>& output_names);

  /// Of a model with several outputs, once it is known which. Cross-replica.
  /// Errors: InvalidArgument for losses and metrics of other outputs.
  void set_outputs(const std::vector<std::string>& names);
  /// Makes metrics of names such as "accuracy", of each output. Cross-replica.
  void resolve_metrics(const std::vector<Shape>& y_true, const std::vector<Shape>& y_pred);
  bool resolved() const { return resolved_.load(std::memory_order_acquire); }
  /// Those of compile(), and all else that steps have updated: metrics of the model's own.
  void reset_metrics() const;
  void reset_compiled_metrics() const;
  /// The model's own metrics are known, as of another compile() of it.
  void take_updated(const CompiledModel& before);
  /// Of loss and metrics, in a fixed order; names that are no metrics yet have none.
  std::vector<Variable> metric_variables() const;
  /// What resolve_metrics() was told: labels', then predictions'. Empty: it was not called.
  const std::vector<Shape>& resolved_for() const { return resolved_for_; }
  /// resolve_metrics() with another model's resolved_for(). False, and nothing is done, where this
  /// one is resolved already, or that one has another number of outputs. Cross-replica.
  bool resolve_as(const std::vector<Shape>& resolved_for);
  /// Errors: FailedPrecondition in a replica of another number of replicas.
  void check_scope() const;

  /// All metrics, of all outputs.
  std::vector<keras::Metric> all_metrics() const;
  /// Those that steps of the program have updated, and compile() was not given.
  std::vector<keras::Metric> own_metrics() const;

  /// As compile() was given them, metrics' names included.
  keras::CompileOptions options;
  /// The optimizer compile() was given, if it has put another one around it.
  keras::Optimizer scaled_optimizer = {};
  /// Of the one output of a model that has one; of others see `outputs`.
  const keras::Loss one_loss;
  const double one_weight;
  std::vector<keras::Metric> metrics, weighted_metrics;
  std::vector<CompiledOutput> outputs;  ///< Empty: there is one, or nobody knows yet.
  LossTracker loss;
  std::vector<LoggedStep> steps;  ///< One per local replica.
  /// Loss and metrics by name, read when asked for. Copied, not rebuilt, in each step.
  keras::Logs live;
  std::atomic<bool> warned_untrained{false};
  const std::shared_ptr<StepCapture> capture;  ///< Makes training steps, if it is not off.
  /// Called once, when metrics of names are made.
  std::function<void()> when_resolved = {};

 private:
  struct Names {
    std::set<std::string> of_losses;
    std::set<std::string> of_all;
  };
  void check_weights(const std::vector<std::string>& names) const;
  void list_metrics();
  /// Whether there was no name among them.
  bool list_of(keras::Logs& all, Names& taken, const std::string& output,
               const std::vector<keras::Metric>& list, bool is_weighted) const;
  static std::string unique_name(Names& taken, const std::string& output, const std::string& metric,
                                 bool is_weighted);

  const Strategy strategy_;
  std::vector<Shape> resolved_for_;
  std::atomic<bool> resolved_{false};
};

}  // namespace cohort::keras::internal
