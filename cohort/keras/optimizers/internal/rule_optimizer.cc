// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/rule_optimizer.h"

#include <algorithm>

#include "cohort/keras/optimizers/internal/option_checks.h"
#include "cohort/keras/optimizers/internal/state_variable.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/recorded_rule.h"

namespace cohort::keras::internal {

using cohort::internal::variables::RecordedRule;
using cohort::internal::variables::RuleOfStep;

namespace {

const CommonOptions& checked(const std::string& name, const CommonOptions& common) {
  OptionChecks(name).common(common);
  return common;
}

}  // namespace

RuleOptimizer::RuleOptimizer(LearningRate learning_rate, std::string name, CommonOptions common,
                             std::vector<SlotSpec> slots)
    : OptimizerBase(learning_rate, std::move(name), common.optimizer),
      common_(checked(this->name(), common)),
      slots_(std::move(slots)) {}

bool RuleOptimizer::decays(const Variable& variable) const {
  return std::none_of(
      common_.exclude_from_weight_decay.begin(), common_.exclude_from_weight_decay.end(),
      [&](const std::string& part) { return variable.name().find(part) != std::string::npos; });
}

void RuleOptimizer::on_build(std::span<const Variable> variables) {
  cohort::internal::variables::UpdaterOptions options;
  options.name = name();
  options.lazy_rows = common_.lazy_rows;
  for (const SlotSpec& slot : slots_) options.slot_initial.push_back(slot.initial);
  if (common_.weight_decay && !common_.exclude_from_weight_decay.empty()) {
    for (const Variable& variable : variables) options.decays.push_back(decays(variable));
  }
  options.clipnorm = clip_of(common_.clipnorm);
  options.clipvalue = clip_of(common_.clipvalue);
  options.global_clipnorm = clip_of(common_.global_clipnorm);
  updater_ = cohort::internal::variables::store_of("[optimizer.build] ", variables.front())
                 .make_updater(std::vector<Variable>(variables.begin(), variables.end()),
                               std::move(options));
  updater_->count_in(iterations());
  slot_variables_.clear();
  for (std::size_t v = 0; v < variables.size(); ++v) {
    for (int s = 0; s < updater_->slot_count(); ++s) {
      const SlotSpec& slot = slots_[static_cast<std::size_t>(s)];
      if (!slot.used) continue;
      const Variable variable =
          state_variable(variables[v],
                         {.name = state_name(variables[v], slot.name),
                          .shape = variables[v].shape(),
                          .dtype = variables[v].dtype()},
                         {.read = [u = updater_, v, s] { return u->slot(v, s); },
                          .write = [u = updater_, v, s](const Tensor& x) { u->set_slot(v, s, x); },
                          .pieces = [u = updater_, v, s] { return u->slot_pieces(v, s); }});
      slot_variables_.push_back({variable, v, slot.name});
    }
  }
  prepare(replicas());
}

void RuleOptimizer::apply(const Gradients& gradients, const ApplyOptions& options) {
  const RuleOfStep now = rule_now();
  const RecordedRule later([this] { return rule_now(); });
  if (options.skip_gradients_aggregation) {
    updater_->apply_own(gradients, now.rule, now.weight_decay);
  } else {
    updater_->apply(gradients, now.rule, now.weight_decay);
  }
}

cohort::internal::variables::FinalGradients* RuleOptimizer::expect_gradients() {
  return updater_->expect_gradients([this] { return rule_now(); });
}

RuleOfStep RuleOptimizer::rule_now() const {
  const double rate = rate_now();
  return {rule(rate, step()), common_.weight_decay.value_or(0) * rate};
}

void RuleOptimizer::update(const Variable& variable, const Gradient& gradient) {
  const double rate = learning_rate();
  updater_->apply_own(Gradients({{gradient, trained()[index_of(variable)]}}), rule(rate, step()),
                      common_.weight_decay.value_or(0) * rate);
}

std::vector<SlotVariable> RuleOptimizer::slot_variables() const { return slot_variables_; }

}  // namespace cohort::keras::internal
