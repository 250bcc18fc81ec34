// SPDX-License-Identifier: Apache-2.0
//
// Base of the optimizers whose rule is one of cohort/update_rules: the variables' store applies it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/optimizers/optimizer.h"
#include "cohort/update_rules/rules.h"
#include "cohort/variables/updater.h"

namespace cohort::internal::variables {
struct RuleOfStep;
}  // namespace cohort::internal::variables
namespace cohort::keras::internal {

/// What all rules take besides their numbers.
struct CommonOptions {
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  OptimizerOptions optimizer = {};
  bool lazy_rows = false;
};

struct SlotSpec {
  const char* name;
  double initial = 0;
  bool used = true;  ///< false: only keeps the place in the rule's order.
};

/// Threads: as OptimizerBase.
class RuleOptimizer : public OptimizerBase {
 public:
  /// Errors: InvalidArgument for more than one way to clip, or a number that makes no sense.
  RuleOptimizer(LearningRate learning_rate, std::string name, CommonOptions common,
                std::vector<SlotSpec> slots);

  /// The rule on one component with its own slots, and the gradient of its replica.
  void update(const Variable& variable, const Gradient& gradient) final;

 protected:
  /// The numbers of the update after `step` others.
  virtual update_rules::Rule rule(double learning_rate, int64_t step) const = 0;
  /// Called once before the first rule().
  virtual void prepare(int replicas) { (void)replicas; }

  void on_build(std::span<const Variable> variables) final;
  void apply(const Gradients& gradients, const ApplyOptions& options) final;
  std::vector<SlotVariable> slot_variables() const final;
  cohort::internal::variables::FinalGradients* expect_gradients() final;

 private:
  bool decays(const Variable& variable) const;
  /// Of the step that is being made.
  cohort::internal::variables::RuleOfStep rule_now() const;

  const CommonOptions common_;
  const std::vector<SlotSpec> slots_;
  std::shared_ptr<cohort::internal::variables::Updater> updater_;
  std::vector<SlotVariable> slot_variables_;
};

}  // namespace cohort::keras::internal
