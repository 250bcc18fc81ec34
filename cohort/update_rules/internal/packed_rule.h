// SPDX-License-Identifier: Apache-2.0
//
// A rule as the kernels of any kind of processor take it. All of it is inline: kernels that are
// loaded later need nothing else of this folder.
#pragma once

#include <variant>

#include "cohort/update_rules/internal/kernels.h"
#include "cohort/update_rules/rules.h"

namespace cohort::update_rules::internal {

/// A rule's kind and its coefficients in the order in which the kernels read them.
struct PackedRule {
  RuleKind kind;
  double coefficients[kMaxCoefficients] = {};
};

struct PackRule {
  PackedRule operator()(const SgdStep& s) const { return {RuleKind::kSgd, {s.learning_rate}}; }
  PackedRule operator()(const MomentumStep& s) const {
    return {s.nesterov ? RuleKind::kNesterov : RuleKind::kMomentum, {s.learning_rate, s.momentum}};
  }
  PackedRule operator()(const AdamStep& s) const {
    return {s.amsgrad ? RuleKind::kAmsgrad : RuleKind::kAdam,
            {s.alpha, s.beta_1, s.beta_2, s.epsilon}};
  }
  PackedRule operator()(const RmspropStep& s) const {
    const bool momentum = s.momentum > 0;
    const RuleKind plain = momentum ? RuleKind::kRmspropMomentum : RuleKind::kRmsprop;
    const RuleKind centered =
        momentum ? RuleKind::kRmspropCenteredMomentum : RuleKind::kRmspropCentered;
    return {s.centered ? centered : plain, {s.learning_rate, s.rho, s.momentum, s.epsilon}};
  }
  PackedRule operator()(const AdagradStep& s) const {
    return {RuleKind::kAdagrad, {s.learning_rate, s.epsilon}};
  }
  PackedRule operator()(const AdadeltaStep& s) const {
    return {RuleKind::kAdadelta, {s.learning_rate, s.rho, s.epsilon}};
  }
  PackedRule operator()(const AdamaxStep& s) const {
    return {RuleKind::kAdamax, {s.alpha, s.beta_1, s.beta_2, s.epsilon}};
  }
  PackedRule operator()(const NadamStep& s) const {
    return {RuleKind::kNadam,
            {s.momentum_scale, s.gradient_scale, s.velocity_scale, s.beta_1, s.beta_2, s.epsilon}};
  }
  PackedRule operator()(const FtrlStep& s) const {
    return {s.learning_rate_power == -0.5 ? RuleKind::kFtrl : RuleKind::kFtrlPower,
            {s.learning_rate, s.learning_rate_power, s.l1, s.l2, s.l2_shrinkage, s.beta}};
  }
  PackedRule operator()(const LionStep& s) const {
    return {RuleKind::kLion, {s.learning_rate, s.beta_1, s.beta_2}};
  }
};

inline PackedRule packed_rule(const Rule& rule) { return std::visit(PackRule{}, rule); }

}  // namespace cohort::update_rules::internal
