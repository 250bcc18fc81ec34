// SPDX-License-Identifier: Apache-2.0
//
// The layers that every model has. Names, options and defaults are those of Keras 3.
//
//   keras::Dense(256, {.activation = "relu"});
//   keras::Dropout(0.5);
//
// `dtype` is that of weights and results, to which inputs are converted; of a layer without weights
// it is what its config says. floatx() unless given.
//
// Behind the handle Dense is the class DenseLayer, from which a program may derive; its config()
// has DenseOptions and the other arguments of the handle's constructor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {
class Draws;
}

struct DenseOptions {
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct DenseConfig : DenseOptions {
  int64_t units = 0;
  static void fields(auto& c, auto&& f) {
    f.required("units", c.units);
    f("activation", c.activation);
    f("use_bias", c.use_bias);
    f("kernel_initializer", c.kernel_initializer);
    f("bias_initializer", c.bias_initializer);
    f("kernel_regularizer", c.kernel_regularizer);
    f("bias_regularizer", c.bias_regularizer);
    f.extra("activity_regularizer", c.activity_regularizer, Regularizer());
    f("kernel_constraint", c.kernel_constraint);
    f("bias_constraint", c.bias_constraint);
    f.newer("quantization_config", nullptr);
  }
};

class DenseLayer : public LayerImpl<DenseConfig> {
 public:
  explicit DenseLayer(DenseConfig config);
  void build(const Shape& input_shape) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  Tensor call_mixed(const Tensor& x) const;
  Tensor call_cast(const Tensor& x) const;

  DType dtype_ = kFloat32;
  bool is_mixed_ = false;
  Variable kernel_, bias_;
};

/// activation(x . kernel + bias).
/// Shapes: [b, ..., in] to [b, ..., units]; kernel [in, units]. TF: keras.layers.Dense.
class Dense : public Layer {
 public:
  explicit Dense(int64_t units, DenseOptions options = {});
};

struct FlattenOptions {
  std::string data_format = "channels_last";  ///< "channels_first": channels become the last axis.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) { f("data_format", c.data_format); }
};

class FlattenLayer : public LayerImpl<FlattenOptions> {
 public:
  explicit FlattenLayer(FlattenOptions options);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;

 protected:
  bool has_build_config() const override { return true; }

 private:
  bool channels_first_ = false;
};

/// Shapes: [b, ...] to [b, the product of the rest]. Cost: none for contiguous inputs.
class Flatten : public Layer {
 public:
  explicit Flatten(FlattenOptions options = {});
};

/// Sizes, one of which may be -1: what is left.
struct TargetShape {
  Shape sizes = {};
  bool operator==(const TargetShape&) const = default;
  Config serialize() const;
  static TargetShape deserialize(const Config& config);
};

struct ReshapeOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct ReshapeConfig : ReshapeOptions {
  TargetShape target_shape = {};
  static void fields(auto& c, auto&& f) { f.required("target_shape", c.target_shape); }
};

class ReshapeLayer : public LayerImpl<ReshapeConfig> {
 public:
  explicit ReshapeLayer(ReshapeConfig config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;
};

/// Shapes: [b, ...] to [b, target_shape...]; one of the target's axes may be -1.
class Reshape : public Layer {
 public:
  explicit Reshape(Shape target_shape, ReshapeOptions options = {});
};

struct ActivationOptions {
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct ActivationConfig : ActivationOptions {
  ActivationFunction activation = {};
  static void fields(auto& c, auto&& f) { f.required("activation", c.activation); }
};

class ActivationLayer : public LayerImpl<ActivationConfig> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override { return config().activation(x); }
};

class Activation : public Layer {
 public:
  explicit Activation(ActivationFunction activation, ActivationOptions options = {});
};

struct ReLUOptions {
  std::optional<double> max_value = {};
  double negative_slope = 0.0;
  double threshold = 0.0;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("max_value", c.max_value);
    f("negative_slope", c.negative_slope);
    f("threshold", c.threshold);
  }
};

class ReLULayer : public LayerImpl<ReLUOptions> {
 public:
  explicit ReLULayer(ReLUOptions options);
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override;
};

/// Errors: InvalidArgument for negative options.
class ReLU : public Layer {
 public:
  explicit ReLU(ReLUOptions options = {});
};

struct SoftmaxOptions {
  int64_t axis = -1;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) { f("axis", c.axis); }
};

class SoftmaxLayer : public LayerImpl<SoftmaxOptions> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  /// What the mask leaves out is 0, and the rest sums to 1.
  /// Errors: InvalidArgument for a mask that does not broadcast to the inputs.
  Tensor call(const Tensor& x, const CallArgs& args) override;
};

class Softmax : public Layer {
 public:
  explicit Softmax(SoftmaxOptions options = {});
};

struct DropoutOptions {
  std::optional<Shape> noise_shape = {};  ///< Axes of 1 (or kUnknownDim: as the input) share draws.
  std::optional<uint64_t> seed = {};      ///< Unset: the process's, set_seed().
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct DropoutConfig : DropoutOptions {
  double rate = 0;
  static void fields(auto& c, auto&& f) {
    f.required("rate", c.rate);
    f("seed", c.seed);
    f.shape("noise_shape", c.noise_shape);
  }
};

class DropoutLayer : public LayerImpl<DropoutConfig> {
 public:
  explicit DropoutLayer(DropoutConfig config);
  ~DropoutLayer() override;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs& args) override;

 protected:
  TrackedParts tracked_parts() const override;

 private:
  std::unique_ptr<internal::Draws> draws_;
};

/// Zeroes a share `rate` of the inputs while training and scales the rest by 1 / (1 - rate).
/// Order: draws depend on the seed, the layer's number, how often this replica called it, and the
/// replica; threads do not matter. Errors: InvalidArgument unless 0 <= rate <= 1.
class Dropout : public Layer {
 public:
  explicit Dropout(double rate, DropoutOptions options = {});
};

struct RescalingOptions {
  double offset = 0.0;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct RescalingConfig : RescalingOptions {
  double scale = 1;
  static void fields(auto& c, auto&& f) {
    f.required("scale", c.scale);
    f("offset", c.offset);
  }
};

class RescalingLayer : public LayerImpl<RescalingConfig> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override;

 protected:
  bool has_build_config() const override { return true; }

 private:
  const DType dtype_ = config().dtype.compute_dtype();
};

/// x * scale + offset, in floating point.
class Rescaling : public Layer {
 public:
  explicit Rescaling(double scale, RescalingOptions options = {});
};

struct InputLayerOptions {
  int64_t batch_size = kUnknownDim;
  std::string name = {};
  DType dtype = floatx();  ///< For the config only: inputs are not converted.
};

/// The config of an input: no name, trainable and dtype policy in front, as in Keras.
struct InputLayerConfig {
  Shape batch_shape = {};
  DType dtype = floatx();
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f.shape("batch_shape", c.batch_shape);
    f("dtype", c.dtype);
    f.constant("sparse", false);
    f.newer("ragged", false);
    f("name", c.name);
    f.newer("optional", false);
  }
};

class DeclaredInput : public LayerBase {
 public:
  explicit DeclaredInput(InputLayerConfig config);
  std::string class_name() const override { return "InputLayer"; }
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  std::optional<Shape> declared_input_shape() const override { return config_.batch_shape; }
  Tensor call(const Tensor& x, const CallArgs&) override;
  const InputLayerConfig& config() const { return config_; }
  Config get_config() const override;
  static std::shared_ptr<DeclaredInput> from_config(const Config& config);

 private:
  const InputLayerConfig config_;
};

/// Declares the shape of a model's inputs, without the batch, so that it can be built at once.
/// Errors: calls with another shape throw InvalidArgument.
class InputLayer : public Layer {
 public:
  explicit InputLayer(Shape shape, InputLayerOptions options = {});
};

}  // namespace cohort::keras
