// SPDX-License-Identifier: Apache-2.0
//
// One step of an optimizer as numbers: what is the same for every element of the step, computed
// once in double. An optimizer builds one Rule per step and hands it to `fused_update`:
//
//   Rule rule = adam_step({.learning_rate = 1e-3}, /*step=*/t);   // t counts from 1
//   fused_update<float>(rule, {.param = w, .slots = {m, v}}, gradients, 0, size);
//
// Formulas are Keras 3's. p parameter, g gradient, s0 s1 s2 the slots in the order listed.
// Threads: immutable values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

namespace cohort::update_rules {

/// p -= lr g. Slots: none.
struct SgdStep {
  double learning_rate = 0.01;
};

/// s0 = momentum s0 - lr g; p += s0, or with nesterov p += momentum s0 - lr g. Slots: momentum.
struct MomentumStep {
  double learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
};

/// What Adam is configured with. The defaults are Keras's.
struct AdamConfig {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
};

/// s0 += (g - s0)(1 - beta_1); s1 += (g^2 - s1)(1 - beta_2); p -= alpha s0 / (sqrt(s1) + epsilon).
/// With amsgrad s2 = max(s2, s1) stands in for s1 in the last one.
/// Slots: momentum, velocity, with amsgrad also velocity_hat.
struct AdamStep {
  double alpha = 1e-3;  ///< lr sqrt(1 - beta_2^t) / (1 - beta_1^t).
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
};
/// The numbers of step `step`, which counts from 1.
AdamStep adam_step(const AdamConfig& config, int64_t step);

/// s0 = rho s0 + (1 - rho) g^2; centered: s1 = rho s1 + (1 - rho) g;
/// d = lr g / sqrt(s0 [- s1^2] + epsilon); momentum: s2 = momentum s2 + d, p -= s2; else p -= d.
/// Slots: velocity, average_gradient (null unless centered), momentum (null unless used).
struct RmspropStep {
  double learning_rate = 1e-3;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;
};

/// s0 += g^2; p -= lr g / sqrt(s0 + epsilon). Slots: accumulator, which starts at 0.1 in Keras.
struct AdagradStep {
  double learning_rate = 1e-3;
  double epsilon = 1e-7;
};

/// s0 = rho s0 + (1 - rho) g^2; d = g sqrt(s1 + epsilon) / sqrt(s0 + epsilon);
/// s1 = rho s1 + (1 - rho) d^2; p -= lr d. Slots: accumulated_grad, accumulated_delta_var.
struct AdadeltaStep {
  double learning_rate = 1e-3;
  double rho = 0.95;
  double epsilon = 1e-7;
};

/// s0 += (g - s0)(1 - beta_1); s1 = max(beta_2 s1, |g|); p -= alpha s0 / (s1 + epsilon).
/// Slots: m, u.
struct AdamaxStep {
  double alpha = 1e-3;  ///< lr / (1 - beta_1^t).
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
};
/// The numbers of step `step`, which counts from 1.
AdamaxStep adamax_step(const AdamConfig& config, int64_t step);

/// s0 and s1 as in Adam; p -= (momentum_scale s0 + gradient_scale g) / (sqrt(s1 velocity_scale) +
/// epsilon). Slots: momentum, velocity.
struct NadamStep {
  double momentum_scale = 0;  ///< lr u_{t+1} / (1 - u_1 ... u_{t+1}).
  double gradient_scale = 0;  ///< lr (1 - u_t) / (1 - u_1 ... u_t).
  double velocity_scale = 1;  ///< 1 / (1 - beta_2^t).
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
};
/// The numbers of step `step`, which counts from 1. `u_product` is the product u_1 ... u_{t-1} on
/// entry (1 at first) and u_1 ... u_t on return; u_t = beta_1 (1 - 0.5 * 0.96^t).
NadamStep nadam_step(const AdamConfig& config, int64_t step, double& u_product);

/// n = s0 + g^2; s1 += g + 2 l2_shrinkage p - (n^-power - s0^-power) / lr p;
/// p = (clip(s1, -l1, l1) - s1) / (n^-power / lr + 2 l2 + beta / lr); s0 = n.
/// Slots: accumulator (0.1 at first), linear (0).
struct FtrlStep {
  double learning_rate = 1e-3;
  double learning_rate_power = -0.5;
  double l1 = 0;
  double l2 = 0;
  double l2_shrinkage = 0;
  double beta = 0;
};

/// p -= lr sign(beta_1 s0 + (1 - beta_1) g); s0 = beta_2 s0 + (1 - beta_2) g. Slots: momentum.
struct LionStep {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
};

/// Any rule. A rule with its numbers is plain data: it can be sent to a parameter server.
using Rule = std::variant<SgdStep, MomentumStep, AdamStep, RmspropStep, AdagradStep, AdadeltaStep,
                          AdamaxStep, NadamStep, FtrlStep, LionStep>;

/// The most slots that any rule has.
inline constexpr std::size_t kMaxSlots = 3;
/// True if the rule reads and writes slot `slot`.
bool uses_slot(const Rule& rule, std::size_t slot);
/// True if a gradient of zero changes neither the parameter nor a slot, to the bit: plain SGD, and
/// Adagrad with an epsilon above 0. Not Ftrl, which computes the parameter anew from its slots.
bool ignores_zero_gradients(const Rule& rule);

}  // namespace cohort::update_rules
