// SPDX-License-Identifier: Apache-2.0
//
// What Model::compile is told.
//
//   model.compile({.loss = "mse", .metrics = {"mae"}});                       // of every output
//   model.compile({.loss = {{"price", "mse"}, {"sold", "binary_crossentropy"}},
//                  .loss_weights = {{"price", 0.1}},
//                  .metrics = {{"sold", {"accuracy"}}}});                      // by output
#pragma once

#include <concepts>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/loss_scale_optimizer.h"
#include "cohort/keras/optimizers/optimizers.h"

namespace cohort::keras {

/// One loss for every output, or one for each, in their order or by their names. An output without
/// a loss adds nothing.
class OutputLosses {
 public:
  OutputLosses() = default;  ///< None.
  template <class L>
  requires(!std::same_as<std::remove_cvref_t<L>, OutputLosses> && std::convertible_to<L, Loss>)
      OutputLosses(L&& loss)  // NOLINT: implicit by design
      : losses_{Loss(std::forward<L>(loss))} {}
  OutputLosses(std::initializer_list<Loss> by_order) : losses_(by_order), is_list_(true) {}
  OutputLosses(std::initializer_list<std::pair<std::string, Loss>> by_name);

  /// Some output has a loss.
  explicit operator bool() const;
  /// Not one for every output.
  bool is_by_output() const { return is_list_; }
  const std::vector<Loss>& losses() const { return losses_; }
  const std::vector<std::string>& names() const { return names_; }
  /// That of output `i` of `count`, called `name`. Errors: InvalidArgument for another number.
  Loss of(std::size_t i, std::size_t count, const std::string& name) const;
  /// Errors: InvalidArgument for a name that no output has.
  void check_names(const std::vector<std::string>& outputs) const;

  Config serialize() const;  ///< As Keras writes it. Errors: as Loss::serialize.
  static OutputLosses deserialize(const Config& config);

 private:
  std::vector<Loss> losses_;
  std::vector<std::string> names_;  // of losses_, if they have any
  bool is_list_ = false;
};

/// Metrics of the one output, or of several by their names; of a list each output gets the one with
/// its index.
class OutputMetrics {
 public:
  OutputMetrics() = default;
  OutputMetrics(std::vector<Metric> metrics) : metrics_(std::move(metrics)) {}  // NOLINT
  OutputMetrics(std::initializer_list<Metric> metrics) : metrics_(metrics) {}
  OutputMetrics(std::initializer_list<std::pair<std::string, std::vector<Metric>>> by_name)
      : by_name_(by_name) {}

  bool empty() const { return metrics_.empty() && by_name_.empty(); }
  bool is_by_output() const { return !by_name_.empty(); }
  void push_back(Metric metric) { metrics_.push_back(std::move(metric)); }
  /// Of a list without names.
  const std::vector<Metric>& metrics() const { return metrics_; }
  /// Those of output `i` of `count`. Errors: InvalidArgument for a list of another length.
  std::vector<Metric> of(std::size_t i, std::size_t count, const std::string& name) const;
  /// Errors: InvalidArgument for a name that no output has.
  void check_names(const std::vector<std::string>& outputs) const;

  Config serialize() const;  ///< As Keras writes it. Errors: as Metric::serialize.
  static OutputMetrics deserialize(const Config& config);

 private:
  std::vector<Metric> metrics_;
  std::vector<std::pair<std::string, std::vector<Metric>>> by_name_;
};

struct CompileOptions {
  Optimizer optimizer = "rmsprop";
  OutputLosses loss = {};
  /// The factor of an output's loss in the sum of losses; 1 if not named. The output of a model
  /// without names is "output_1".
  std::map<std::string, double> loss_weights = {};
  OutputMetrics metrics = {};
  OutputMetrics weighted_metrics = {};  ///< Those that see the sample weights.
  /// Steps per call of Strategy::run. Callbacks are called once for all of them.
  int steps_per_execution = 1;
  /// Put a LossScaleOptimizer around the optimizer of a model made under "mixed_float16".
  bool auto_scale_loss = true;
  /// Parts in which workers of a ParameterServerStrategy evaluate what a DatasetCreator makes.
  /// 0: five for each worker. TF: the same, with "auto" for that.
  int pss_evaluation_shards = 0;
  /// The loss of batches whose n rows do not divide by the replicas. True: every example has the
  /// weight 1/n, whichever replica it is on. False: TensorFlow's way, the mean of the replicas'
  /// means.
  bool exact_uneven_batches = true;
  /// Whether training steps on a GPU are recorded, as a CUDA graph, and from then on started by one
  /// call each, with the same numbers. Unset: where that is safe, else a line in the log says why
  /// not. True: what the classes of the program do in a step on the host is done once, as in
  /// tf.function, and fit throws FailedPrecondition where a step cannot be recorded. False: never.
  /// On CPUs it changes nothing in this version. TF: jit_compile, "auto" where unset; XLA's part.
  std::optional<bool> jit_compile = {};
  bool run_eagerly = false;  ///< Every step operation by operation, whatever jit_compile says.
};

}  // namespace cohort::keras
