// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/core.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/alias.h>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/windows.h"
#include "cohort/keras/layers/text_input_layer.h"

namespace cohort::keras {
namespace {

int64_t product(const Shape& shape, std::size_t from) {
  int64_t n = 1;
  for (std::size_t i = from; i < shape.size(); ++i) {
    if (shape[i] == kUnknownDim) return kUnknownDim;
    COHORT_CHECK_ARG(!__builtin_mul_overflow(n, shape[i], &n),
                     "[layer] expected fewer than 2^63 values in an example, got shape ",
                     bracketed(shape));
  }
  return n;
}

Shape with_batch(int64_t batch, const Shape& rest) {
  Shape shape = {batch};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

}  // namespace

Shape FlattenLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(!in.empty(), "[", name(), "] expected at least 1 axis, got a scalar");
  return {in[0], product(in, 1)};
}

FlattenLayer::FlattenLayer(FlattenOptions options)
    : LayerImpl(std::move(options)),
      channels_first_(internal::is_channels_first("flatten", config().data_format)) {}

Tensor FlattenLayer::call(const Tensor& input, const CallArgs&) {
  const bool moves = channels_first_ && input.dim() > 2;
  const Tensor x = moves ? internal::to_channels_last(input) : input;
  return x.reshape(compute_output_shape(shape_of(x)));
}

Config TargetShape::serialize() const {
  Config::List list;
  for (const int64_t size : sizes) list.emplace_back(size);
  return list;
}

TargetShape TargetShape::deserialize(const Config& config) { return {ShapeValue::read(config)}; }

ReshapeLayer::ReshapeLayer(ReshapeConfig config) : LayerImpl(std::move(config)) {
  const Shape& target = this->config().target_shape.sizes;
  int unknown = 0;
  for (const int64_t n : target) {
    COHORT_CHECK_ARG(n >= -1, "[reshape] expected sizes of at least -1, got ", bracketed(target));
    unknown += n == -1 ? 1 : 0;
  }
  COHORT_CHECK_ARG(unknown <= 1, "[reshape] expected at most one -1, got ", bracketed(target));
}

Tensor ReshapeLayer::call(const Tensor& x, const CallArgs&) {
  return x.reshape(compute_output_shape(shape_of(x)));
}

Shape ReshapeLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(!in.empty(), "[", name(), "] expected at least 1 axis, got a scalar");
  const Shape& target = config().target_shape.sizes;
  const int64_t size = product(in, 1);
  Shape out = {in[0]};
  int64_t known = 1;
  for (const int64_t n : target) {
    COHORT_CHECK_ARG(!__builtin_mul_overflow(known, n == -1 ? 1 : n, &known), "[", name(),
                     "] expected a target_shape of fewer than 2^63 values, got ",
                     bracketed(target));
  }
  bool fits = size == kUnknownDim || known == size;
  for (const int64_t n : target) {
    if (n != -1 || size == kUnknownDim) {
      out.push_back(n);
    } else {
      fits = known > 0 && size % known == 0;
      out.push_back(fits ? size / known : -1);
    }
  }
  COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs that fit ", bracketed(target),
                   ", got shape ", bracketed(in));
  return out;
}

ReLULayer::ReLULayer(ReLUOptions options) : LayerImpl(std::move(options)) {
  const auto not_negative = [](const char* what, double value) {
    COHORT_CHECK_ARG(value >= 0, "[re_lu] expected ", what, " >= 0, got ", value);
  };
  not_negative("max_value", config().max_value.value_or(0));
  not_negative("negative_slope", config().negative_slope);
  not_negative("threshold", config().threshold);
}

Tensor ReLULayer::call(const Tensor& x, const CallArgs&) {
  return activations::relu(x, config().negative_slope, config().max_value.value_or(-1),
                           config().threshold);
}

Tensor SoftmaxLayer::call(const Tensor& x, const CallArgs& args) {
  if (!args.mask.has_value() || !args.mask[0].has_value()) {
    return activations::softmax(x, config().axis);
  }
  Tensor kept = args.mask[0].tensor();
  COHORT_CHECK_ARG(at::is_expandable_to(kept.sizes(), x.sizes()), "[", name(),
                   "] expected a mask that broadcasts to inputs of shape ", bracketed(x.sizes()),
                   ", got ", bracketed(kept.sizes()));
  kept = kept.scalar_type() == kBool ? kept : kept.gt(0.5);
  // Keras's number, not -inf: a row without any is 0, not NaN.
  const double far = x.scalar_type() == kFloat16 ? -3e4 : -1e9;
  return activations::softmax(x.where(kept, far), config().axis).where(kept, 0.0);
}

DropoutLayer::DropoutLayer(DropoutConfig config)
    : LayerImpl(std::move(config)), draws_(std::make_unique<internal::Draws>(this->config().seed)) {
  const double rate = this->config().rate;
  COHORT_CHECK_ARG(rate >= 0 && rate <= 1, "[dropout] expected 0 <= rate <= 1, got ", rate);
}

DropoutLayer::~DropoutLayer() = default;

Tensor DropoutLayer::call(const Tensor& x, const CallArgs& args) {
  if (!args.training || config().rate == 0) return x;
  const Shape shape = internal::mask_shape(name(), config().noise_shape, x);
  return x.mul(draws_->keep_mask(shape, config().rate, x));
}

TrackedParts DropoutLayer::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  draws_->add_to(parts);
  return parts;
}

Tensor RescalingLayer::call(const Tensor& x, const CallArgs&) {
  const Tensor scaled = x.to(dtype_) * config().scale;
  return config().offset == 0 ? scaled : scaled + config().offset;
}

// The data as they come: in a half type the numbers of tokens would be others.
DeclaredInput::DeclaredInput(InputLayerConfig config)
    : LayerBase(config.name), config_(std::move(config)) {
  COHORT_CHECK_ARG(!config_.batch_shape.empty(), "[", name(),
                   "] expected a batch_shape that begins with the batch, got []");
  set_autocast(false);
}

Tensor DeclaredInput::call(const Tensor& x, const CallArgs& args) {
  const Shape& shape = config_.batch_shape;
  bool fits = x.dim() == static_cast<int64_t>(shape.size());
  for (std::size_t i = 1; fits && i < shape.size(); ++i) {
    fits = shape[i] == kUnknownDim || x.size(static_cast<int64_t>(i)) == shape[i];
  }
  COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs of shape ", bracketed(shape), ", got ",
                   bracketed(x.sizes()));
  // A mask of this call alone must not stay with the caller's tensor.
  const bool has_mask = args.mask.has_value() && args.mask[0].has_value();
  const bool is_new = has_mask && !internal::mask_of(x).is_same(args.mask[0].tensor());
  return is_new ? at::alias(x) : x;
}

Config DeclaredInput::get_config() const {
  InputLayerConfig now = config_;
  now.name = name();
  return config_of(now);
}

std::shared_ptr<DeclaredInput> DeclaredInput::from_config(const Config& config) {
  const Config* dtype = config.find("dtype");
  if (dtype != nullptr && *dtype == "string") return DeclaredTextInput::from_config(config);
  Config now = config;
  // What TensorFlow 2.13 to 2.15 call it.
  if (const Config* shape = config.find("batch_input_shape");
      shape != nullptr && !config.contains("batch_shape")) {
    now = Config::object();
    for (const auto& [name, value] : config.members()) {
      now.set(name == "batch_input_shape" ? "batch_shape" : name, value);
    }
  }
  return std::make_shared<DeclaredInput>(options_of<InputLayerConfig>(now, "InputLayer"));
}

Flatten::Flatten(FlattenOptions options)
    : Layer(std::make_shared<FlattenLayer>(std::move(options))) {}

Reshape::Reshape(Shape target_shape, ReshapeOptions options)
    : Layer(std::make_shared<ReshapeLayer>(
          ReshapeConfig{std::move(options), {std::move(target_shape)}})) {}

Activation::Activation(ActivationFunction activation, ActivationOptions options)
    : Layer(std::make_shared<ActivationLayer>(ActivationConfig{std::move(options), activation})) {}

ReLU::ReLU(ReLUOptions options) : Layer(std::make_shared<ReLULayer>(std::move(options))) {}

Softmax::Softmax(SoftmaxOptions options)
    : Layer(std::make_shared<SoftmaxLayer>(std::move(options))) {}

Dropout::Dropout(double rate, DropoutOptions options)
    : Layer(std::make_shared<DropoutLayer>(DropoutConfig{std::move(options), rate})) {}

Rescaling::Rescaling(double scale, RescalingOptions options)
    : Layer(std::make_shared<RescalingLayer>(RescalingConfig{std::move(options), scale})) {}

InputLayer::InputLayer(Shape shape, InputLayerOptions options)
    : Layer(std::make_shared<DeclaredInput>(InputLayerConfig{
          with_batch(options.batch_size, shape), options.dtype, std::move(options.name)})) {}

}  // namespace cohort::keras
