// SPDX-License-Identifier: Apache-2.0
//
// Activations: a name of Keras's list, or any callable Tensor -> Tensor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/callable.h"
#include "cohort/keras/config.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras {

/// The value that layers take; the layer is `Activation` in layers/core.h.
/// Threads: immutable.
class ActivationFunction {
 public:
  ActivationFunction() = default;        ///< Linear: the identity.
  ActivationFunction(std::nullptr_t) {}  // NOLINT: implicit by design, as the next
  /// "relu", "softmax", ... Errors: InvalidArgument that lists the known names.
  ActivationFunction(const char* name);         // NOLINT: implicit by design
  ActivationFunction(const std::string& name);  // NOLINT
  template <class F>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&> ActivationFunction(F fn)
      : name_("custom"),
        fn_(cohort::internal::base::checked_function("[activation]", std::move(fn))),  // NOLINT
        own_(std::make_shared<char>()) {}
  // Copied where it is moved: what was moved from must not read as linear.
  ActivationFunction(const ActivationFunction&) = default;
  ActivationFunction& operator=(const ActivationFunction&) = default;

  /// "linear", a name of Keras, or "custom". Layers fuse the names they know.
  const std::string& name() const { return name_; }
  bool is_relu() const { return is_relu_; }
  Tensor operator()(const Tensor& x) const { return fn_ ? fn_(x) : x; }

  /// The name. Errors: Unimplemented for a callable.
  Config serialize() const;
  /// A name, or null, which is linear. TF: keras.activations.deserialize.
  static ActivationFunction deserialize(const Config& config);
  /// A callable is equal to its copies alone.
  friend bool operator==(const ActivationFunction& a, const ActivationFunction& b) {
    return a.name_ == b.name_ && a.own_ == b.own_;
  }

 private:
  std::string name_ = "linear";
  bool is_relu_ = false;
  std::function<Tensor(const Tensor&)> fn_;
  std::shared_ptr<char> own_;  // of a callable, which has nothing else to be compared by
};

/// Every name that ActivationFunction knows, sorted.
std::vector<std::string> activation_names();

/// The functions themselves, with Keras's parameters and defaults. TF: keras.activations.
namespace activations {

/// 0 below `threshold` (there negative_slope * (x - threshold)), at most max_value if it is >= 0.
Tensor relu(const Tensor& x, double negative_slope = 0, double max_value = -1,
            double threshold = 0);
/// x above `threshold`, elsewhere `default_value`.
Tensor threshold(const Tensor& x, double threshold, double default_value);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.2);
Tensor elu(const Tensor& x, double alpha = 1);
Tensor gelu(const Tensor& x, bool approximate = false);
/// Along `axis`. Errors: InvalidArgument for a rank of 0.
Tensor softmax(const Tensor& x, int64_t axis = -1);
Tensor log_softmax(const Tensor& x, int64_t axis = -1);

}  // namespace activations
}  // namespace cohort::keras
