// SPDX-License-Identifier: Apache-2.0
#include "cohort/update_rules/rules.h"

#include <cmath>

namespace cohort::update_rules {
namespace {

struct UsesSlot {
  std::size_t slot;
  bool operator()(const SgdStep&) const { return false; }
  bool operator()(const MomentumStep&) const { return slot < 1; }
  bool operator()(const AdamStep& s) const { return slot < (s.amsgrad ? 3u : 2u); }
  bool operator()(const RmspropStep& s) const {
    return slot == 0 || (slot == 1 && s.centered) || (slot == 2 && s.momentum > 0);
  }
  bool operator()(const AdagradStep&) const { return slot < 1; }
  bool operator()(const AdadeltaStep&) const { return slot < 2; }
  bool operator()(const AdamaxStep&) const { return slot < 2; }
  bool operator()(const NadamStep&) const { return slot < 2; }
  bool operator()(const FtrlStep&) const { return slot < 2; }
  bool operator()(const LionStep&) const { return slot < 1; }
};

double power(double base, int64_t exponent) {
  return std::pow(base, static_cast<double>(exponent));
}

}  // namespace

AdamStep adam_step(const AdamConfig& config, int64_t step) {
  const double alpha = config.learning_rate * std::sqrt(1 - power(config.beta_2, step)) /
                       (1 - power(config.beta_1, step));
  return {alpha, config.beta_1, config.beta_2, config.epsilon, config.amsgrad};
}

AdamaxStep adamax_step(const AdamConfig& config, int64_t step) {
  return {config.learning_rate / (1 - power(config.beta_1, step)), config.beta_1, config.beta_2,
          config.epsilon};
}

NadamStep nadam_step(const AdamConfig& config, int64_t step, double& u_product) {
  const double u = config.beta_1 * (1 - 0.5 * power(0.96, step));
  const double u_next = config.beta_1 * (1 - 0.5 * power(0.96, step + 1));
  u_product *= u;
  const double lr = config.learning_rate;
  return {.momentum_scale = lr * u_next / (1 - u_product * u_next),
          .gradient_scale = lr * (1 - u) / (1 - u_product),
          .velocity_scale = 1 / (1 - power(config.beta_2, step)),
          .beta_1 = config.beta_1,
          .beta_2 = config.beta_2,
          .epsilon = config.epsilon};
}

bool uses_slot(const Rule& rule, std::size_t slot) { return std::visit(UsesSlot{slot}, rule); }

bool ignores_zero_gradients(const Rule& rule) {
  if (std::holds_alternative<SgdStep>(rule)) return true;
  // Without an epsilon, zero over the root of an accumulator of zero is NaN.
  const auto* adagrad = std::get_if<AdagradStep>(&rule);
  return adagrad != nullptr && adagrad->epsilon > 0;
}

}  // namespace cohort::update_rules
