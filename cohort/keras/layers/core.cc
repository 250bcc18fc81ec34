// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/core.h"

#include <c10/core/GradMode.h>

#include <span>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"

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

Tensor FlattenLayer::call(const Tensor& x, const CallArgs&) {
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

DropoutLayer::DropoutLayer(DropoutConfig config)
    : LayerImpl(std::move(config)),
      seed_(this->config().seed),
      operation_(cohort::internal::next_operation_number()) {
  if (seed_) operation_ = 1;
  const double rate = this->config().rate;
  COHORT_CHECK_ARG(rate >= 0 && rate <= 1, "[dropout] expected 0 <= rate <= 1, got ", rate);
}

Tensor DropoutLayer::call(const Tensor& x, const CallArgs& args) {
  if (!args.training || config().rate == 0) return x;
  return x.mul(mask(x));
}

TrackedParts DropoutLayer::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  auto* self = const_cast<DropoutLayer*>(this);  // what restores it is not const
  parts.values.push_back({.name = "random",
                          .dtype = kInt64,
                          .shape = Shape{3},
                          .read = [self] { return self->position(); },
                          .write = [self](const Tensor& x) { self->set_position(x); },
                          .identity = &operation_});
  return parts;
}

Tensor DropoutLayer::position() const {
  const cohort::internal::MutexLock lock(steps_mutex_);
  uint64_t calls = first_step_;
  for (const uint64_t step : steps_) calls = std::max(calls, step);
  const uint64_t seed = seed_.value_or(cohort::internal::current_seed());
  return from_vector<int64_t>(
      {static_cast<int64_t>(seed), static_cast<int64_t>(operation_), static_cast<int64_t>(calls)},
      {3});
}

void DropoutLayer::set_position(const Tensor& position) {
  const std::vector<int64_t> numbers = to_vector<int64_t>(position);
  const cohort::internal::MutexLock lock(steps_mutex_);
  seed_ = static_cast<uint64_t>(numbers[0]);
  operation_ = static_cast<uint64_t>(numbers[1]);
  first_step_ = static_cast<uint64_t>(numbers[2]);
  steps_.clear();
}

uint64_t DropoutLayer::next_step(int replica) {
  const cohort::internal::MutexLock lock(steps_mutex_);
  const std::size_t i = static_cast<std::size_t>(replica + 1);
  if (i >= steps_.size()) steps_.resize(i + 1, first_step_);
  return steps_[i]++;
}

Shape DropoutLayer::mask_shape(const Tensor& x) const {
  Shape shape = shape_of(x);
  if (!config().noise_shape) return shape;
  const Shape& noise = *config().noise_shape;
  bool fits = noise.size() == shape.size();
  for (std::size_t i = 0; fits && i < noise.size(); ++i) {
    if (noise[i] == kUnknownDim) continue;
    fits = noise[i] == 1 || noise[i] == shape[i];
    shape[i] = noise[i];
  }
  COHORT_CHECK_ARG(fits, "[", name(), "] expected a noise shape that broadcasts to ",
                   bracketed(x.sizes()), ", got ", bracketed(noise));
  return shape;
}

Tensor DropoutLayer::mask(const Tensor& x) {
  const uint64_t step = next_step(current_replica());
  const cohort::internal::RandomStream stream(seed_.value_or(cohort::internal::current_seed()),
                                              operation_, step,
                                              cohort::internal::current_global_replica());
  const DType dtype = x.scalar_type() == kFloat64 ? kFloat64 : kFloat32;
  Tensor out = empty(mask_shape(x), dtype);
  const auto size = static_cast<std::size_t>(out.numel());
  if (dtype == kFloat64) {
    cohort::internal::fill_keep_mask(stream, config().rate,
                                     std::span(out.data_ptr<double>(), size));
  } else {
    cohort::internal::fill_keep_mask(stream, config().rate, std::span(out.data_ptr<float>(), size));
  }
  return out.to(x.options());
}

Tensor RescalingLayer::call(const Tensor& x, const CallArgs&) {
  const Tensor scaled = x.to(dtype_) * config().scale;
  return config().offset == 0 ? scaled : scaled + config().offset;
}

DeclaredInput::DeclaredInput(InputLayerConfig config)
    : LayerBase(config.name), config_(std::move(config)) {}

Tensor DeclaredInput::call(const Tensor& x, const CallArgs&) {
  const Shape& shape = config_.batch_shape;
  bool fits = x.dim() == static_cast<int64_t>(shape.size());
  for (std::size_t i = 1; fits && i < shape.size(); ++i) {
    fits = shape[i] == kUnknownDim || x.size(static_cast<int64_t>(i)) == shape[i];
  }
  COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs of shape ", bracketed(shape), ", got ",
                   bracketed(x.sizes()));
  return x;
}

Config DeclaredInput::get_config() const {
  InputLayerConfig now = config_;
  now.name = name();
  return config_of(now);
}

std::shared_ptr<DeclaredInput> DeclaredInput::from_config(const Config& config) {
  return std::make_shared<DeclaredInput>(options_of<InputLayerConfig>(config, "InputLayer"));
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
