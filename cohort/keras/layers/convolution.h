// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, with the names, options and defaults of Keras 3.
//
//   keras::Conv2D(32, {3, 3}, {.padding = "same", .activation = "relu"});
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {
struct ConvolutionPlan;
}

/// Of rows and columns: {5, 3}. One number stands for both. Python's (5, 3) is C++'s comma
/// operator, which is 3: compilers say so by -Wunused-value, which linking to Cohort turns on.
struct Size2D {
  int64_t height = 1;
  int64_t width = 1;
  Size2D(int64_t both) : height(both), width(both) {}  // NOLINT: implicit by design
  Size2D(int64_t rows, int64_t columns) : height(rows), width(columns) {}
  bool operator==(const Size2D&) const = default;
  /// [5, 3]; one number is read as well.
  Config serialize() const { return Config::List{height, width}; }
  static Size2D deserialize(const Config& config);
};

struct Conv2DOptions {
  Size2D strides = 1;
  /// "valid": only whole windows. "same": zeros around, ceil(size / stride) outputs; where the
  /// number of zeros is odd, the one more is at the end.
  std::string padding = "valid";
  std::string data_format = "channels_last";  ///< Or "channels_first".
  Size2D dilation_rate = 1;
  int64_t groups = 1;
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct Conv2DConfig : Conv2DOptions {
  int64_t filters = 0;
  Size2D kernel_size = 1;
  static void fields(auto& c, auto&& f) {
    f.required("filters", c.filters);
    f.required("kernel_size", c.kernel_size);
    f("strides", c.strides);
    f("padding", c.padding);
    f("data_format", c.data_format);
    f("dilation_rate", c.dilation_rate);
    f("groups", c.groups);
    f("activation", c.activation);
    f("use_bias", c.use_bias);
    f("kernel_initializer", c.kernel_initializer);
    f("bias_initializer", c.bias_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("bias_regularizer", c.bias_regularizer);
    f.constant("activity_regularizer", nullptr);
    f("kernel_constraint", c.kernel_constraint);
    f("bias_constraint", c.bias_constraint);
  }
};

/// Of Conv2D, see core.h.
class Conv2DLayer : public LayerImpl<Conv2DConfig> {
 public:
  explicit Conv2DLayer(Conv2DConfig config);
  ~Conv2DLayer() override;
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  std::unique_ptr<internal::ConvolutionPlan> plan_;
  bool channels_first_ = false;
  DType dtype_ = kFloat32;
  Variable kernel_, bias_;
};

/// Shapes: [b, h, w, in] to [b, h', w', filters]; kernel [kh, kw, in / groups, filters].
/// Errors: InvalidArgument for strides together with dilation, for channels that the groups do not
///         divide, and for windows larger than the input. TF: keras.layers.Conv2D.
/// Cost: float32 with filters a multiple of 16 and one group, on one intra-op thread, runs Cohort's
///       kernels, anything else LibTorch's convolution, which serves several threads.
class Conv2D : public Layer {
 public:
  Conv2D(int64_t filters, Size2D kernel_size, Conv2DOptions options = {});
};

}  // namespace cohort::keras
