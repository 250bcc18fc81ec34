// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/core.h"

#include <c10/core/GradMode.h>

#include <span>

#include "cohort/base/check.h"
#include "cohort/base/mutex.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/runtime/random.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::keras {
namespace {

int64_t product(const Shape& shape, std::size_t from) {
  int64_t n = 1;
  for (std::size_t i = from; i < shape.size(); ++i) {
    if (shape[i] == kUnknownDim) return kUnknownDim;
    n *= shape[i];
  }
  return n;
}

class FlattenLayer final : public LayerBase {
 public:
  using LayerBase::LayerBase;
  std::string class_name() const override { return "Flatten"; }
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override {
    COHORT_CHECK_ARG(!in.empty(), "[", name(), "] expected at least 1 axis, got a scalar");
    return {in[0], product(in, 1)};
  }
  Tensor call(const Tensor& x, const CallArgs&) override {
    return x.reshape(compute_output_shape(shape_of(x)));
  }
};

class ReshapeLayer final : public LayerBase {
 public:
  ReshapeLayer(Shape target, std::string name)
      : LayerBase(std::move(name)), target_(std::move(target)) {
    int unknown = 0;
    for (const int64_t n : target_) {
      COHORT_CHECK_ARG(n >= -1, "[reshape] expected sizes of at least -1, got ",
                       bracketed(target_));
      unknown += n == -1 ? 1 : 0;
    }
    COHORT_CHECK_ARG(unknown <= 1, "[reshape] expected at most one -1, got ", bracketed(target_));
  }
  std::string class_name() const override { return "Reshape"; }
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& in) const override;
  Tensor call(const Tensor& x, const CallArgs&) override {
    return x.reshape(compute_output_shape(shape_of(x)));
  }

 private:
  const Shape target_;
};

Shape ReshapeLayer::compute_output_shape(const Shape& in) const {
  COHORT_CHECK_ARG(!in.empty(), "[", name(), "] expected at least 1 axis, got a scalar");
  const int64_t size = product(in, 1);
  Shape out = {in[0]};
  int64_t known = 1;
  for (const int64_t n : target_) known *= n == -1 ? 1 : n;
  bool fits = size == kUnknownDim || known == size;
  for (const int64_t n : target_) {
    if (n != -1 || size == kUnknownDim) {
      out.push_back(n);
    } else {
      fits = known > 0 && size % known == 0;
      out.push_back(fits ? size / known : -1);
    }
  }
  COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs that fit ", bracketed(target_),
                   ", got shape ", bracketed(in));
  return out;
}

class ActivationLayer final : public LayerBase {
 public:
  ActivationLayer(ActivationFunction function, std::string name)
      : LayerBase(std::move(name)), function_(function) {}
  std::string class_name() const override { return "Activation"; }
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override { return function_(x); }

 private:
  const ActivationFunction function_;
};

class ReluLayer final : public LayerBase {
 public:
  explicit ReluLayer(ReLUOptions options) : LayerBase(options.name), options_(std::move(options)) {
    const auto not_negative = [](const char* what, double value) {
      COHORT_CHECK_ARG(value >= 0, "[re_lu] expected ", what, " >= 0, got ", value);
    };
    not_negative("max_value", options_.max_value.value_or(0));
    not_negative("negative_slope", options_.negative_slope);
    not_negative("threshold", options_.threshold);
  }
  std::string class_name() const override { return "ReLU"; }
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    return activations::relu(x, options_.negative_slope, options_.max_value.value_or(-1),
                             options_.threshold);
  }

 private:
  const ReLUOptions options_;
};

class SoftmaxLayer final : public LayerBase {
 public:
  explicit SoftmaxLayer(const SoftmaxOptions& options)
      : LayerBase(options.name), axis_(options.axis) {}
  std::string class_name() const override { return "Softmax"; }
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override { return activations::softmax(x, axis_); }

 private:
  const int64_t axis_;
};

class DropoutLayer final : public LayerBase {
 public:
  DropoutLayer(double rate, DropoutOptions options)
      : LayerBase(options.name),
        rate_(rate),
        options_(std::move(options)),
        seed_(options_.seed),
        operation_(cohort::internal::next_operation_number()) {
    if (seed_) operation_ = 1;
    COHORT_CHECK_ARG(rate >= 0 && rate <= 1, "[dropout] expected 0 <= rate <= 1, got ", rate);
  }
  std::string class_name() const override { return "Dropout"; }
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs& args) override {
    if (!args.training || rate_ == 0) return x;
    return x.mul(mask(x));
  }

 private:
  TrackedParts tracked_parts() const override;
  Tensor mask(const Tensor& x);
  Shape mask_shape(const Tensor& x) const;
  uint64_t next_step(int replica);
  /// seed, operation, calls: where the draws go on, on every replica.
  Tensor position() const;
  void set_position(const Tensor& position);

  const double rate_;
  const DropoutOptions options_;
  std::optional<uint64_t> seed_;  // unset: the process's
  uint64_t operation_;
  mutable cohort::internal::Mutex steps_mutex_;
  // Of replicas that have not called yet.
  uint64_t first_step_ COHORT_GUARDED_BY(steps_mutex_) = 0;
  // Calls so far, [replica + 1].
  std::vector<uint64_t> steps_ COHORT_GUARDED_BY(steps_mutex_);
};

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
  if (!options_.noise_shape) return shape;
  const Shape& noise = *options_.noise_shape;
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
    cohort::internal::fill_keep_mask(stream, rate_, std::span(out.data_ptr<double>(), size));
  } else {
    cohort::internal::fill_keep_mask(stream, rate_, std::span(out.data_ptr<float>(), size));
  }
  return out.to(x.options());
}

class RescalingLayer final : public LayerBase {
 public:
  RescalingLayer(double scale, const RescalingOptions& options)
      : LayerBase(options.name),
        scale_(scale),
        offset_(options.offset),
        dtype_(options.dtype.value_or(floatx())) {}
  std::string class_name() const override { return "Rescaling"; }
  bool may_have_weights() const override { return false; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    const Tensor scaled = x.to(dtype_) * scale_;
    return offset_ == 0 ? scaled : scaled + offset_;
  }

 private:
  const double scale_;
  const double offset_;
  const DType dtype_;
};

class DeclaredInput final : public LayerBase {
 public:
  DeclaredInput(Shape shape, const InputLayerOptions& options) : LayerBase(options.name) {
    shape_ = {options.batch_size};
    shape_.insert(shape_.end(), shape.begin(), shape.end());
  }
  std::string class_name() const override { return "InputLayer"; }
  bool may_have_weights() const override { return false; }
  std::optional<Shape> declared_input_shape() const override { return shape_; }
  Tensor call(const Tensor& x, const CallArgs&) override {
    bool fits = x.dim() == static_cast<int64_t>(shape_.size());
    for (std::size_t i = 1; fits && i < shape_.size(); ++i) {
      fits = shape_[i] == kUnknownDim || x.size(static_cast<int64_t>(i)) == shape_[i];
    }
    COHORT_CHECK_ARG(fits, "[", name(), "] expected inputs of shape ", bracketed(shape_), ", got ",
                     bracketed(x.sizes()));
    return x;
  }

 private:
  Shape shape_;
};

}  // namespace

Flatten::Flatten(FlattenOptions options)
    : Layer(std::make_shared<FlattenLayer>(std::move(options.name))) {}

Reshape::Reshape(Shape target_shape, ReshapeOptions options)
    : Layer(std::make_shared<ReshapeLayer>(std::move(target_shape), std::move(options.name))) {}

Activation::Activation(ActivationFunction activation, ActivationOptions options)
    : Layer(std::make_shared<ActivationLayer>(std::move(activation), std::move(options.name))) {}

ReLU::ReLU(ReLUOptions options) : Layer(std::make_shared<ReluLayer>(std::move(options))) {}

Softmax::Softmax(SoftmaxOptions options) : Layer(std::make_shared<SoftmaxLayer>(options)) {}

Dropout::Dropout(double rate, DropoutOptions options)
    : Layer(std::make_shared<DropoutLayer>(rate, std::move(options))) {}

Rescaling::Rescaling(double scale, RescalingOptions options)
    : Layer(std::make_shared<RescalingLayer>(scale, options)) {}

InputLayer::InputLayer(Shape shape, InputLayerOptions options)
    : Layer(std::make_shared<DeclaredInput>(std::move(shape), options)) {}

}  // namespace cohort::keras
