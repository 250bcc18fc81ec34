// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/preprocessing.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/dataset.h"
#include "cohort/keras/layers/internal/category_codes.h"

namespace cohort::keras {
namespace {

constexpr double kLeastDeviation = 1e-7;  // keras.config.epsilon()
constexpr int64_t kRowsOfOneAxis = 128;   // how Keras batches elements of one axis for adapt()

NormalizationOptions with_listed_axes(NormalizationOptions options) {
  options.axis.is_list = true;
  return options;
}

// y = (x - mean) / deviation, or its inverse, in one pass over [rows, features].
template <bool kInvert>
void normalize_features(const float* x, float* y, int64_t rows, int64_t features, const float* mean,
                        const float* deviation) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* const in = x + row * features;
    float* const out = y + row * features;
    for (int64_t i = 0; i < features; ++i) {
      out[i] = kInvert ? in[i] * deviation[i] + mean[i] : (in[i] - mean[i]) / deviation[i];
    }
  }
}

// As in Keras one number of an axis may stand for all that the other has there.
bool broadcasts(const Tensor& x, const Tensor& mean) {
  if (x.dim() != mean.dim()) return false;
  for (int64_t axis = 0; axis < x.dim(); ++axis) {
    const int64_t size = x.size(axis), kept = mean.size(axis);
    if (size != kept && size != 1 && kept != 1) return false;
  }
  return true;
}

// Whether mean and deviation are those of the last axes of x, in float32, and nobody wants a
// gradient.
bool is_plain_normalization(const Tensor& x, const Tensor& mean) {
  if (c10::GradMode::is_enabled() && x.requires_grad()) return false;
  const bool floats = x.scalar_type() == kFloat32 && mean.scalar_type() == kFloat32;
  if (!floats || !x.is_cpu() || !x.is_contiguous() || !mean.is_contiguous()) return false;
  bool shared = false;  // an axis that the mean has one number for, behind one that it has not
  for (int64_t axis = mean.dim(); axis-- > 0;) {
    const bool all = mean.size(axis) == x.size(axis);
    if (!all && mean.size(axis) != 1) return false;  // y is wider than x
    if (all && shared && x.size(axis) != 1) return false;
    shared = shared || !all;
  }
  return true;
}

}  // namespace

Config FeatureNumbers::serialize() const {
  if (each.empty()) return {};
  if (!is_list) return each.front();
  return Config::List(each.begin(), each.end());
}

FeatureNumbers FeatureNumbers::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_number()) return config.number();
  std::vector<double> numbers;
  for (const Config& one : config.list()) {
    if (one.is_list()) {
      throw Unimplemented("[normalization] expected mean and variance as numbers or as one list");
    }
    numbers.push_back(one.number());
  }
  return numbers;
}

NormalizationLayer::NormalizationLayer(NormalizationOptions options)
    : LayerImpl(with_listed_axes(std::move(options))) {
  const FeatureNumbers& mean = config().mean;
  const FeatureNumbers& variance = config().variance;
  COHORT_CHECK_ARG(mean.each.size() == variance.each.size() && mean.is_list == variance.is_list,
                   "[normalization] expected mean and variance both, as many of one as of the "
                   "other, got ",
                   mean.each.size(), " and ", variance.each.size());
}

void NormalizationLayer::build(const Shape& input_shape) {
  const auto rank = static_cast<int64_t>(input_shape.size());
  kept_ = config().axis.of_rank(name(), rank);
  built_for_ = input_shape;
  broadcast_.assign(input_shape.size(), 1);
  Shape kept_sizes;
  for (const int64_t axis : kept_) {
    const int64_t size = input_shape[static_cast<std::size_t>(axis)];
    COHORT_CHECK_ARG(size != kUnknownDim, "[", name(), "] expected a known size of axis ", axis,
                     ", got shape ", bracketed(input_shape),
                     axis == 0 ? ": of inputs without features say .axis = {}" : "");
    broadcast_[static_cast<std::size_t>(axis)] = size;
    kept_sizes.push_back(size);
  }
  if (!config().mean.each.empty()) return build_given();
  const auto state = [&](const char* what, const Shape& shape, DType dtype, const char* initial) {
    return add_weight({.name = what,
                       .shape = shape,
                       .dtype = dtype,
                       .initializer = initial,
                       .trainable = false,
                       .aggregation = Aggregation::kOnlyFirstReplica});
  };
  const DType dtype = config().dtype.variable_dtype();
  mean_ = state("mean", kept_sizes, dtype, "zeros");
  variance_ = state("variance", kept_sizes, dtype, "ones");
  count_ = state("count", {}, kInt64, "zeros");
}

void NormalizationLayer::build_given() {
  const auto as_built = [this](const FeatureNumbers& numbers) {
    Shape shape = broadcast_;
    const auto count = static_cast<int64_t>(numbers.each.size());
    if (numbers.is_list) {
      const bool fits = !kept_.empty() && (count == 1 || broadcast_[kept_.back()] == count);
      COHORT_CHECK_ARG(fits, "[", name(), "] expected one mean or as many as axis ",
                       kept_.empty() ? -1 : kept_.back(), " of ", bracketed(built_for_), ", got ",
                       count);
      std::fill(shape.begin(), shape.end(), 1);
      shape[static_cast<std::size_t>(kept_.back())] = count;
    } else {
      std::fill(shape.begin(), shape.end(), 1);
    }
    return from_vector<double>(numbers.each, shape)
        .to(config().dtype.compute_dtype())
        .expand(broadcast_)
        .contiguous();
  };
  given_mean_ = as_built(config().mean);
  given_variance_ = as_built(config().variance);
}

Tensor NormalizationLayer::call(const Tensor& input, const CallArgs&) {
  const DType dtype = config().dtype.compute_dtype();
  const Tensor x = input.scalar_type() == dtype ? input : input.to(dtype);
  const auto number = [&](const Variable& learnt, const Tensor& given,
                          internal::DeviceConstant& given_there) {
    if (learnt) return learnt.value().detach().to(dtype).reshape(broadcast_);
    return x.is_cpu() ? given : given_there.on(x, [&] { return given; });
  };
  const Tensor mean = number(mean_, given_mean_, given_mean_there_);
  const Tensor variance = number(variance_, given_variance_, given_variance_there_);
  const Tensor deviation = variance.sqrt().clamp_min(kLeastDeviation);
  COHORT_CHECK_ARG(broadcasts(x, mean), "[", name(), "] expected inputs of shape ",
                   bracketed(built_for_), ", got shape ", bracketed(x.sizes()));
  if (!is_plain_normalization(x, mean)) {
    return config().invert ? x * deviation + mean : (x - mean) / deviation;
  }
  Tensor y = at::empty_like(x);
  const int64_t features = mean.numel();
  const int64_t rows = x.numel() / std::max<int64_t>(features, 1);
  const auto* const in = x.const_data_ptr<float>();
  const auto* const means = mean.const_data_ptr<float>();
  const auto* const deviations = deviation.const_data_ptr<float>();
  auto* const out = y.data_ptr<float>();
  if (config().invert) {
    normalize_features<true>(in, out, rows, features, means, deviations);
  } else {
    normalize_features<false>(in, out, rows, features, means, deviations);
  }
  return y;
}

void NormalizationLayer::begin_learning() {
  COHORT_CHECK_STATE(config().mean.each.empty(),
                     "[adapt] expected a layer that is to learn its mean and variance, got \"",
                     name(), "\", which was given them");
  rows_ = 0;
  learnt_mean_ = Tensor();
  learnt_squares_ = Tensor();
}

Element NormalizationLayer::as_batches(const Element& dataset) const {
  const Dataset all = dataset.dataset();
  const ElementSpec& spec = all.element_spec();
  const ElementSpec& first = spec.is_tuple() ? spec[0] : spec;
  const bool one_axis =
      first.is_leaf() && first.leaf().known_rank && first.leaf().shape.size() == 1;
  return one_axis ? all.batch(kRowsOfOneAxis) : all;
}

Tensor NormalizationLayer::features_last(const Tensor& x) const {
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < x.dim(); ++axis) {
    if (!std::ranges::binary_search(kept_, axis)) order.push_back(axis);
  }
  order.insert(order.end(), kept_.begin(), kept_.end());
  int64_t features = 1;
  for (const int64_t axis : kept_) features *= x.size(axis);
  return x.to(at::kCPU, kFloat64).permute(order).reshape({-1, features});
}

// Means and sums of squared differences, joined batch by batch in float64.
void NormalizationLayer::learn(const Element& batch) {
  const Tensor& x = batch.tensor();
  Shape shape = shape_of(x);
  COHORT_CHECK_ARG(!shape.empty(), "[adapt] expected batches for \"", name(), "\", got a scalar");
  shape[0] = kUnknownDim;
  ensure_built(shape);
  bool fits = shape.size() == built_for_.size();
  for (const int64_t axis : kept_) {
    fits =
        fits && shape[static_cast<std::size_t>(axis)] == built_for_[static_cast<std::size_t>(axis)];
  }
  COHORT_CHECK_ARG(fits, "[adapt] expected data of shape ", bracketed(built_for_), " for \"",
                   name(), "\", got ", bracketed(shape));
  if (x.numel() == 0) return;
  const Tensor rows = features_last(x.detach());
  const auto count = static_cast<double>(rows.size(0));
  const Tensor mean = rows.mean(0);
  const Tensor squares = (rows - mean).square().sum(0);
  if (rows_ == 0) {
    learnt_mean_ = mean;
    learnt_squares_ = squares;
  } else {
    const Tensor off = mean - learnt_mean_;
    const double all = rows_ + count;
    learnt_mean_ = learnt_mean_ + off * (count / all);
    learnt_squares_ = learnt_squares_ + squares + off.square() * (rows_ * count / all);
  }
  rows_ += count;
}

void NormalizationLayer::finish_learning() {
  COHORT_CHECK_ARG(rows_ > 0, "[adapt] expected data for \"", name(), "\", got no rows");
  const Shape shape = mean_.shape();
  mean_.assign(learnt_mean_.to(mean_.dtype()).reshape(shape));
  variance_.assign((learnt_squares_ / rows_).to(variance_.dtype()).reshape(shape));
}

Normalization::Normalization(NormalizationOptions options)
    : AdaptingHandle(std::make_shared<NormalizationLayer>(std::move(options))) {}

}  // namespace cohort::keras
