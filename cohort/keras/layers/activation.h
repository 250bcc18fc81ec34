// SPDX-License-Identifier: Apache-2.0
//
// Activations that are layers of their own, with the names, options and defaults of Keras 3. ReLU,
// Softmax and Activation are in core.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

struct ELUOptions {
  double alpha = 1.0;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) { f("alpha", c.alpha); }
};

class ELULayer : public LayerImpl<ELUOptions> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    return activations::elu(x, config().alpha);
  }
};

/// alpha * (exp(x) - 1) below 0.
using ELU = Handle<ELULayer>;

struct LeakyReLUOptions {
  double negative_slope = 0.3;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) { f("negative_slope", c.negative_slope); }
};

class LeakyReLULayer : public LayerImpl<LeakyReLUOptions> {
 public:
  explicit LeakyReLULayer(LeakyReLUOptions options);
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    return activations::leaky_relu(x, config().negative_slope);
  }
};

/// negative_slope * x below 0. Errors: InvalidArgument for a negative_slope below 0.
using LeakyReLU = Handle<LeakyReLULayer>;

/// Axes in a list, or one.
struct SharedAxes {
  std::vector<int64_t> each = {};
  SharedAxes(int64_t axis) : each{axis} {}                         // NOLINT: implicit by design
  SharedAxes(std::initializer_list<int64_t> axes) : each(axes) {}  // NOLINT
  bool operator==(const SharedAxes&) const = default;
  Config serialize() const { return Config::List(each.begin(), each.end()); }
  static SharedAxes deserialize(const Config& config);
};

struct PReLUOptions {
  Initializer alpha_initializer = "zeros";
  Regularizer alpha_regularizer = {};
  Constraint alpha_constraint = {};
  std::optional<SharedAxes> shared_axes = {};  ///< Along which there is one alpha.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("alpha_initializer", c.alpha_initializer);
    f("alpha_regularizer", c.alpha_regularizer);
    f("alpha_constraint", c.alpha_constraint);
    f("shared_axes", c.shared_axes);
  }
};

class PReLULayer : public LayerImpl<PReLUOptions> {
 public:
  using LayerImpl::LayerImpl;
  void build(const Shape& input_shape) override;
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override;

 private:
  Variable alpha_;
};

/// alpha * x below 0, where alpha is learned. Shapes: alpha has the input's, without the batch.
using PReLU = Handle<PReLULayer>;

}  // namespace cohort::keras
