// SPDX-License-Identifier: Apache-2.0
//
// Activations: a name of Keras's list, or any callable Tensor -> Tensor.
#pragma once

#include <functional>
#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// Threads: immutable.
class Activation {
 public:
  Activation() = default;  ///< Linear: the identity.
  /// "relu", "softmax", ... Errors: InvalidArgument that lists the known names.
  Activation(const char* name);         // NOLINT: implicit by design
  Activation(const std::string& name);  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> Activation(F fn)
      : name_("custom"), fn_(std::move(fn)) {}  // NOLINT

  /// "linear", a name of Keras, or "custom". Layers fuse the names they know.
  const std::string& name() const { return name_; }
  bool is_linear() const { return fn_ == nullptr; }
  Tensor operator()(const Tensor& x) const { return fn_ ? fn_(x) : x; }

 private:
  std::string name_ = "linear";
  std::function<Tensor(const Tensor&)> fn_;
};

}  // namespace cohort::keras
