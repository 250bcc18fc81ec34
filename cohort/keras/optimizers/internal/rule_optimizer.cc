// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/rule_optimizer.h"

#include <algorithm>
#include <cmath>

#include "cohort/base/check.h"
#include "cohort/keras/optimizers/internal/slot_variable.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/update_rules/update.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {
namespace {

const CommonOptions& checked(const std::string& name, const CommonOptions& common) {
  const int clips = int{common.clipnorm.has_value()} + int{common.clipvalue.has_value()} +
                    int{common.global_clipnorm.has_value()};
  COHORT_CHECK_ARG(clips <= 1, "[", name,
                   "] expected at most one of clipnorm, clipvalue and "
                   "global_clipnorm, got ",
                   clips);
  for (const auto& clip : {common.clipnorm, common.clipvalue, common.global_clipnorm}) {
    COHORT_CHECK_ARG(!clip || *clip > 0, "[", name, "] expected to clip above 0, got ", *clip);
  }
  COHORT_CHECK_ARG(!common.weight_decay || *common.weight_decay >= 0, "[", name,
                   "] expected weight_decay of 0 or more, got ", *common.weight_decay);
  return common;
}

template <class T>
void update_component(const update_rules::Rule& rule, Tensor& parameter, const Tensor& gradient,
                      update_rules::UpdateOptions how, std::optional<double> clipnorm) {
  const auto n = static_cast<std::size_t>(parameter.numel());
  const T* source = gradient.const_data_ptr<T>();
  if (clipnorm) {
    const double squares = update_rules::sum_of_squares<T>({&source, 1}, 0, n);
    how.gradient_scale = update_rules::norm_clip_scale(std::sqrt(squares), *clipnorm);
  }
  update_rules::update<T>(rule, {parameter.mutable_data_ptr<T>(), n}, {}, {source, n}, how);
}

}  // namespace

RuleOptimizer::RuleOptimizer(LearningRate learning_rate, std::string name, CommonOptions common,
                             std::vector<SlotSpec> slots)
    : OptimizerBase(std::move(learning_rate), std::move(name)),
      common_(checked(this->name(), common)),
      slots_(std::move(slots)) {}

bool RuleOptimizer::decays(const Variable& variable) const {
  return std::none_of(
      common_.exclude_from_weight_decay.begin(), common_.exclude_from_weight_decay.end(),
      [&](const std::string& part) { return variable.name().find(part) != std::string::npos; });
}

void RuleOptimizer::on_build(std::span<const Variable> variables) {
  cohort::internal::FusedUpdateOptions options;
  for (const SlotSpec& slot : slots_) options.slot_initial.push_back(slot.initial);
  if (common_.weight_decay && !common_.exclude_from_weight_decay.empty()) {
    for (const Variable& variable : variables) options.decays.push_back(decays(variable));
  }
  options.clipnorm = common_.clipnorm;
  options.clipvalue = common_.clipvalue;
  options.global_clipnorm = common_.global_clipnorm;
  fused_ = std::make_shared<cohort::internal::FusedUpdate>(
      std::vector<Variable>(variables.begin(), variables.end()), std::move(options));
  slot_variables_.clear();
  for (std::size_t v = 0; v < variables.size(); ++v) {
    std::string owner = variables[v].name();
    std::replace(owner.begin(), owner.end(), '/', '_');
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      if (!slots_[s].used) continue;
      slot_variables_.push_back(slot_variable(fused_, v, static_cast<int>(s),
                                              str_cat(name(), "/", owner, "_", slots_[s].name)));
    }
  }
}

void RuleOptimizer::apply(const Gradients& gradients, const ApplyOptions& options) {
  if (options.skip_gradients_aggregation && replicas() > 1) {
    return OptimizerBase::apply(gradients, options);
  }
  const double rate = learning_rate();
  fused_->apply(gradients, rule(rate, step()), common_.weight_decay.value_or(0) * rate);
}

void RuleOptimizer::update(const Variable& variable, const Gradient& gradient) {
  if (!slots_.empty() || common_.global_clipnorm) {
    throw Unimplemented(
        str_cat("[optimizer.apply_gradients] expected gradients that are summed "
                "over replicas, got skip_gradients_aggregation for \"",
                name(), "\", whose slots or global_clipnorm are shared by all replicas"));
  }
  const double rate = learning_rate();
  Tensor& parameter = variable.impl().local_component().tensor;
  const Tensor dense = gradient.as_tensor().to(parameter.scalar_type()).contiguous();
  COHORT_CHECK_ARG(dense.sizes() == parameter.sizes(),
                   "[optimizer.apply_gradients] expected a gradient of shape ",
                   bracketed(parameter.sizes()), " for \"", variable.name(), "\", got ",
                   bracketed(dense.sizes()));
  update_rules::UpdateOptions how;
  if (common_.clipvalue) how.clip_value = *common_.clipvalue;
  if (decays(variable)) how.weight_decay = common_.weight_decay.value_or(0) * rate;
  const cohort::internal::FlushDenormals flush;
  if (parameter.scalar_type() == kFloat32) {
    update_component<float>(rule(rate, step()), parameter, dense, how, common_.clipnorm);
  } else {
    update_component<double>(rule(rate, step()), parameter, dense, how, common_.clipnorm);
  }
  parameter.unsafeGetTensorImpl()->bump_version();
}

std::vector<Variable> RuleOptimizer::slot_variables() const { return slot_variables_; }

}  // namespace cohort::keras::internal
