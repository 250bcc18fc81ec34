// SPDX-License-Identifier: Apache-2.0
//
// Penalties on weights that join the loss.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include "cohort/base/callable.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// A name ("l1", "l2", "l1_l2"), one of the functions below, or any callable Tensor -> scalar.
/// Threads: immutable.
class Regularizer {
 public:
  Regularizer() = default;               ///< None.
  Regularizer(const char* name);         // NOLINT: implicit by design
  Regularizer(const std::string& name);  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> Regularizer(F penalty)
      : penalty_(cohort::internal::checked_function("[regularizer]", std::move(penalty))) {
  }  // NOLINT
  // Copied where it is moved: what was moved from must not read as none.
  Regularizer(const Regularizer&) = default;
  Regularizer& operator=(const Regularizer&) = default;

  explicit operator bool() const { return penalty_ != nullptr; }
  Tensor operator()(const Tensor& weight) const { return penalty_(weight); }

 private:
  std::function<Tensor(const Tensor&)> penalty_;
};

/// factor * sum |w|.
Regularizer L1(double factor = 0.01);
/// factor * sum w^2.
Regularizer L2(double factor = 0.01);
Regularizer L1L2(double l1 = 0.01, double l2 = 0.01);

}  // namespace cohort::keras
