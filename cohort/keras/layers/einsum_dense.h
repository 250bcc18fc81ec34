// SPDX-License-Identifier: Apache-2.0
//
// A product of the input and a kernel over whichever axes an equation says, with the names, options
// and defaults of Keras 3.
//
//   keras::EinsumDense("abc,cd->abd", {kUnknownDim, 64}, {.bias_axes = "d"});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

struct EinsumDenseOptions {
  ActivationFunction activation = {};
  std::optional<std::string> bias_axes = {};  ///< Those of the output that have a bias: "d".
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::optional<int64_t> lora_rank = {};  ///< Not there yet: throws Unimplemented.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct EinsumDenseConfig : EinsumDenseOptions {
  std::string equation = {};
  Shape output_shape = {};
  static void fields(auto& c, auto&& f) {
    f.shape("output_shape", c.output_shape);
    f.required("equation", c.equation);
    f("activation", c.activation);
    f("bias_axes", c.bias_axes);
    f("kernel_initializer", c.kernel_initializer);
    f("bias_initializer", c.bias_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("bias_regularizer", c.bias_regularizer);
    f("activity_regularizer", c.activity_regularizer);
    f("kernel_constraint", c.kernel_constraint);
    f("bias_constraint", c.bias_constraint);
    f.newer("quantization_config", nullptr);
    f.extra("lora_rank", c.lora_rank, {});
  }
};

/// Of EinsumDense, see core.h.
class EinsumDenseLayer : public LayerImpl<EinsumDenseConfig> {
 public:
  explicit EinsumDenseLayer(EinsumDenseConfig config);
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  /// The axes of the equation by their letters.
  struct Equation {
    std::string input, kernel, output;
    bool left = false;   ///< "...": further axes ahead of these,
    bool right = false;  ///< or behind them.
  };
  struct Sizes {
    Shape kernel, bias, output;
    std::vector<int64_t> in_axes, out_axes;  ///< Of the kernel: that the output lacks; that it has.
  };
  static Equation parsed(const std::string& text);
  Sizes sizes_for(const Shape& input_shape) const;
  Shape bias_for(const Shape& output, std::size_t elided) const;

  const Equation equation_;
  Variable kernel_, bias_;
};

/// activation(einsum(equation, x, kernel) + bias).
/// `equation`: "ab,bc->ac", "...ab,bc->...ac" or "ab...,bc->ac...". `output_shape`: the output's
/// without the batch and "..."; kUnknownDim where the input says it.
/// Errors: InvalidArgument for other equations, and for shapes that do not fit.
/// TF: keras.layers.EinsumDense.
class EinsumDense : public Layer {
 public:
  EinsumDense(std::string equation, Shape output_shape, EinsumDenseOptions options = {});
  EinsumDense(std::string equation, int64_t output_size, EinsumDenseOptions options = {})
      : EinsumDense(std::move(equation), Shape{output_size}, std::move(options)) {}
};

}  // namespace cohort::keras
