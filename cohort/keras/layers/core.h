// SPDX-License-Identifier: Apache-2.0
//
// The layers that every model has. Names, options and defaults are those of Keras 3.
//
//   keras::Dense(256, {.activation = "relu"});
//   keras::Dropout(0.5);
//
// `dtype` is that of weights and results; inputs are converted. Empty: floatx().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/activations.h"
#include "cohort/keras/layer.h"

namespace cohort::keras {

struct DenseOptions {
  ActivationFunction activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = "glorot_uniform";
  Initializer bias_initializer = "zeros";
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::optional<DType> dtype = {};
  std::string name = {};
};

/// activation(x . kernel + bias).
/// Shapes: [b, ..., in] to [b, ..., units]; kernel [in, units]. TF: keras.layers.Dense.
class Dense : public Layer {
 public:
  explicit Dense(int64_t units, DenseOptions options = {});
};

struct FlattenOptions {
  std::string name = {};
};
/// Shapes: [b, ...] to [b, the product of the rest]. Cost: none for contiguous inputs.
class Flatten : public Layer {
 public:
  explicit Flatten(FlattenOptions options = {});
};

struct ReshapeOptions {
  std::string name = {};
};
/// Shapes: [b, ...] to [b, target_shape...]; one of the target's axes may be -1.
class Reshape : public Layer {
 public:
  explicit Reshape(Shape target_shape, ReshapeOptions options = {});
};

struct ActivationOptions {
  std::string name = {};
};
class Activation : public Layer {
 public:
  explicit Activation(ActivationFunction activation, ActivationOptions options = {});
};

struct ReLUOptions {
  std::optional<double> max_value = {};
  double negative_slope = 0.0;
  double threshold = 0.0;
  std::string name = {};
};
/// Errors: InvalidArgument for negative options.
class ReLU : public Layer {
 public:
  explicit ReLU(ReLUOptions options = {});
};

struct SoftmaxOptions {
  int64_t axis = -1;
  std::string name = {};
};
class Softmax : public Layer {
 public:
  explicit Softmax(SoftmaxOptions options = {});
};

struct DropoutOptions {
  std::optional<Shape> noise_shape = {};  ///< Axes of 1 (or kUnknownDim: as the input) share draws.
  std::optional<uint64_t> seed = {};      ///< Unset: the process's, set_seed().
  std::string name = {};
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
  std::optional<DType> dtype = {};
  std::string name = {};
};
/// x * scale + offset, in floating point.
class Rescaling : public Layer {
 public:
  explicit Rescaling(double scale, RescalingOptions options = {});
};

struct InputLayerOptions {
  int64_t batch_size = kUnknownDim;
  std::string name = {};
};
/// Declares the shape of a model's inputs, without the batch, so that it can be built at once.
/// Errors: calls with another shape throw InvalidArgument.
class InputLayer : public Layer {
 public:
  explicit InputLayer(Shape shape, InputLayerOptions options = {});
};

}  // namespace cohort::keras
