// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/normalization.h"

#include <ATen/ops/where.h>

#include "cohort/autograd/layer_node.h"
#include "cohort/base/check.h"
#include "cohort/keras/internal/rectified_call.h"
#include "cohort/keras/layers/internal/own_normalization.h"
#include "cohort/keras/layers/internal/torch_normalization.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras {
namespace {

using cohort::internal::autograd::BelowAutograd;

// With the activation that the model has joined to it.
Tensor as_called(const LayerBase& layer, const Tensor& y) {
  return internal::RectifiedCall::of(layer) ? y.relu() : y;
}

}  // namespace

BatchNormalizationLayer::BatchNormalizationLayer(BatchNormalizationOptions options)
    : LayerImpl(std::move(options)) {
  set_autocast(false);  // statistics of mixed precision are those of the variables' type
  COHORT_CHECK_ARG(config().epsilon > 0, "[batch_normalization] expected epsilon > 0, got ",
                   config().epsilon);
  COHORT_CHECK_ARG(config().momentum >= 0 && config().momentum <= 1,
                   "[batch_normalization] expected 0 <= momentum <= 1, got ", config().momentum);
}

Variable BatchNormalizationLayer::statistic(const char* weight_name,
                                            const Initializer& initializer) {
  return add_weight({.name = weight_name,
                     .shape = {channels_},
                     .dtype = dtype_,
                     .initializer = initializer,
                     .trainable = false,
                     .synchronization = Synchronization::kOnRead,
                     .aggregation = Aggregation::kMean});
}

void BatchNormalizationLayer::build(const Shape& input_shape) {
  rank_ = static_cast<int64_t>(input_shape.size());
  axis_ = config().axis < 0 ? rank_ + config().axis : config().axis;
  COHORT_CHECK_ARG(rank_ >= 2 && axis_ > 0 && axis_ < rank_, "[", name(),
                   "] expected inputs with a batch and an axis ", config().axis, ", got shape ",
                   bracketed(input_shape));
  channels_ = input_shape[static_cast<std::size_t>(axis_)];
  COHORT_CHECK_ARG(channels_ > 0, "[", name(), "] expected a known size of axis ", config().axis,
                   ", got shape ", bracketed(input_shape));
  dtype_ = config().dtype.variable_dtype();
  output_dtype_ = config().dtype.compute_dtype();
  if (config().scale) {
    gamma_ = add_weight({.name = "gamma",
                         .shape = {channels_},
                         .dtype = dtype_,
                         .initializer = config().gamma_initializer,
                         .regularizer = config().gamma_regularizer,
                         .constraint = config().gamma_constraint});
  }
  if (config().center) {
    beta_ = add_weight({.name = "beta",
                        .shape = {channels_},
                        .dtype = dtype_,
                        .initializer = config().beta_initializer,
                        .regularizer = config().beta_regularizer,
                        .constraint = config().beta_constraint});
  }
  moving_mean_ = statistic("moving_mean", config().moving_mean_initializer);
  moving_variance_ = statistic("moving_variance", config().moving_variance_initializer);
  set_input_spec({.rank = rank_, .axis = axis_ == rank_ - 1 ? -1 : axis_, .size = channels_});
}

Tensor BatchNormalizationLayer::call(const Tensor& input, const CallArgs& args) {
  const bool fits = input.scalar_type() == dtype_ || takes_narrow(input, args);
  Tensor x = fits ? input : input.to(dtype_);
  if (axis_ != rank_ - 1) x = x.movedim(axis_, -1);
  const bool training = args.training && trainable();
  Tensor y;
  ReplicaContext replicas =
      training && config().synchronized ? get_replica_context() : ReplicaContext();
  if (replicas && replicas.num_replicas_in_sync() == 1) replicas = {};
  const Tensor counts = training ? counted_places(input, args) : Tensor();
  if (counts.defined() && (replicas || x.numel() > 0)) {
    y = train_masked(x, counts, replicas);
  } else if (replicas) {
    y = train_synchronized(x, replicas);
  } else {
    y = training && x.numel() > 0 ? train(x) : infer(x);  // an empty batch has no statistics
  }
  if (y.scalar_type() != output_dtype_) y = y.to(output_dtype_);
  return axis_ != rank_ - 1 ? y.movedim(-1, axis_) : y;
}

// The kernels of devices read half precision, and compute with what is wider themselves.
bool BatchNormalizationLayer::takes_narrow(const Tensor& input, const CallArgs& args) const {
  return !input.is_cpu() && at::isReducedFloatingType(input.scalar_type()) && dtype_ == kFloat32 &&
         !config().synchronized && !args.mask.has_value();
}

// Under mixed precision x may be of the type that is computed in.
Tensor BatchNormalizationLayer::train_on_device(const Tensor& x) const {
  const Tensor mean = moving_mean_.impl().leaf().tensor;
  const Tensor variance = moving_variance_.impl().leaf().tensor;
  keep_moving();
  return as_called(*this, internal::device_normalization(x, gamma_, beta_, config().epsilon,
                                                         {mean, variance, config().momentum}));
}

Tensor BatchNormalizationLayer::train(const Tensor& x) {
  if (!x.is_cpu()) return train_on_device(x);
  if (internal::has_own_normalization(x)) {
    const internal::OwnNormalized forward = internal::own_normalization(
        x, gamma_, beta_, config().epsilon, internal::RectifiedCall::of(*this));
    update_moving(forward.mean, forward.variance);
    return forward.y;
  }
  const internal::TorchNormalized forward =
      internal::torch_normalization(x, gamma_, beta_, config().epsilon);
  {
    const BelowAutograd below;
    update_moving(
        forward.mean,
        forward.inverse_deviation.to(kFloat64).pow(-2).sub(config().epsilon).clamp_min(0));
  }
  return as_called(*this, forward.y);
}

// Plain operations, the sums of which are all-reduced, and so are their gradients. The replicas
// meet twice, for mean and then variance: a difference of squares would lose what is small beside
// the mean. Every replica has to come, those without rows, too.
Tensor BatchNormalizationLayer::train_synchronized(const Tensor& x,
                                                   const ReplicaContext& replicas) {
  const Tensor rows = x.reshape({-1, channels_});
  const auto [total, count] = replicas.all_reduce(
      ReduceOp::kSum, std::pair(rows.sum(0), static_cast<double>(rows.size(0))));
  if (count == 0) return infer(x);
  const Tensor mean = total / count;
  const Tensor centered = rows - mean;
  const Tensor variance = replicas.all_reduce(ReduceOp::kSum, centered.square().sum(0)) / count;
  update_moving(mean.detach(), variance.detach());
  return scaled(centered, variance).reshape(x.sizes());
}

// Where the mask is true, laid out as the input that call() has turned.
Tensor BatchNormalizationLayer::counted_places(const Tensor& input, const CallArgs& args) const {
  if (!args.mask.has_value()) [[likely]]
    return {};
  const Tensor mask = args.mask.tensor();
  COHORT_CHECK_ARG(mask.dim() == rank_ - 1, "[", name(),
                   "] expected a mask with one axis less than the input ", bracketed(input.sizes()),
                   ", got ", bracketed(mask.sizes()));
  const Tensor counts = mask.to(kBool).unsqueeze(-1).expand(input.sizes());
  return axis_ != rank_ - 1 ? counts.movedim(axis_, -1) : counts;
}

// Of the places that count, in plain operations; all others are normalized with them. `replicas`:
// with whom the sums are common, if with anybody.
Tensor BatchNormalizationLayer::train_masked(const Tensor& x, const Tensor& counts,
                                             const ReplicaContext& replicas) {
  const auto of_all = [&](const auto& sums) {
    return replicas ? replicas.all_reduce(ReduceOp::kSum, sums) : sums;
  };
  const Tensor rows = x.reshape({-1, channels_});
  const Tensor counted = counts.reshape({-1, channels_});
  const Tensor left_out = counted.logical_not();
  const auto sums =
      of_all(std::pair(rows.masked_fill(left_out, 0).sum(0), counted.to(dtype_).sum(0)));
  const Tensor none = sums.second.eq(0).all();
  if (none.is_cpu() && none.item<bool>()) return infer(x);
  const Tensor divisor = sums.second.clamp_min(1);
  Tensor mean = sums.first / divisor;
  // On a device nobody reads whether any counts: the moving statistics stand in where none does.
  if (!none.is_cpu()) mean = at::where(none, moving_mean_.value(), mean);
  const Tensor centered = rows - mean;
  Tensor variance = of_all(centered.masked_fill(left_out, 0).square().sum(0)) / divisor;
  if (!none.is_cpu()) variance = at::where(none, moving_variance_.value(), variance);
  update_moving(mean.detach(), variance.detach());
  return scaled(centered, variance).reshape(x.sizes());
}

Tensor BatchNormalizationLayer::scaled(const Tensor& centered, const Tensor& variance) const {
  Tensor y = centered * (variance + config().epsilon).rsqrt();
  if (gamma_) y = y * gamma_.value();
  return as_called(*this, beta_ ? y + beta_.value() : y);
}

// The forward pass is only half a step: if the other half fails, this was for nothing.
void BatchNormalizationLayer::keep_moving() const {
  if (auto* undo = cohort::internal::variables::StepUndo::current(); undo != nullptr) {
    undo->keep(moving_mean_.value());
    undo->keep(moving_variance_.value());
  }
}

void BatchNormalizationLayer::update_moving(const Tensor& mean, const Tensor& variance) const {
  const BelowAutograd below;
  const double rest = 1 - config().momentum;
  keep_moving();
  moving_mean_.assign(moving_mean_.value().lerp(mean, rest));
  moving_variance_.assign(moving_variance_.value().lerp(variance.to(dtype_), rest));
}

// Plain operations: gamma and beta get their gradients from LibTorch.
Tensor BatchNormalizationLayer::infer(const Tensor& x) const {
  if (!x.is_cpu() && x.numel() > 0) {
    return as_called(
        *this, internal::device_inference(x, gamma_ ? gamma_.value() : Tensor(),
                                          beta_ ? beta_.value() : Tensor(), moving_mean_.value(),
                                          moving_variance_.value(), config().epsilon));
  }
  Tensor scale = (moving_variance_.value() + config().epsilon).rsqrt();
  if (gamma_) scale = scale * gamma_.value();
  if (internal::has_own_normalization(x) &&
      !cohort::internal::autograd::needs_node({&x}, {&gamma_, &beta_})) {
    const Tensor shift =
        (beta_ ? beta_.value() : zeros({channels_})) - moving_mean_.value() * scale;
    return internal::scaled_rows(x, scale, shift, internal::RectifiedCall::of(*this));
  }
  const Tensor y = (x - moving_mean_.value()) * scale;
  return as_called(*this, beta_ ? y + beta_.value() : y);
}

BatchNormalization::BatchNormalization(BatchNormalizationOptions options)
    : Layer(std::make_shared<BatchNormalizationLayer>(std::move(options))) {}

}  // namespace cohort::keras
