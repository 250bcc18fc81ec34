// SPDX-License-Identifier: Apache-2.0
//
// CategoryEncoding and Discretization.
#include <ATen/ops/bucketize.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/layers/internal/category_codes.h"
#include "cohort/keras/layers/preprocessing.h"

namespace cohort::keras {
namespace {

constexpr std::array<const char*, 3> kEncodingModes = {"multi_hot", "one_hot", "count"};
constexpr std::array<const char*, 4> kBinModes = {"int", "one_hot", "multi_hot", "count"};

CategoryEncodingConfig with_known_mode(CategoryEncodingConfig config) {
  config.output_mode =
      internal::output_mode_of("category_encoding", config.output_mode, kEncodingModes);
  return config;
}

ElementSpec spec_of_categories(const ElementSpec& inputs, const std::string& mode, int64_t depth,
                               DType dtype) {
  return TensorSpec{internal::encoded_shape(inputs[0].leaf().shape, mode, depth), dtype};
}

// The ordinate at x of the line through points with ascending xs; outside of them that of the ends.
double interpolated(double x, const std::vector<float>& xs, const std::vector<float>& ys) {
  const auto above = std::upper_bound(xs.begin(), xs.end(), x);
  if (above == xs.begin()) return ys.front();
  if (above == xs.end()) return ys.back();
  const auto i = static_cast<std::size_t>(above - xs.begin());
  const double x0 = xs[i - 1], x1 = xs[i], y0 = ys[i - 1], y1 = ys[i];
  return (y1 - y0) / (x1 - x0) * (x - x0) + y0;
}

// NaN comes behind all numbers, as numpy has it.
bool comes_before(float a, float b) { return a < b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

CategoryEncodingLayer::CategoryEncodingLayer(CategoryEncodingConfig config)
    : LayerImpl(with_known_mode(std::move(config))) {
  set_autocast(false);
  COHORT_CHECK_ARG(this->config().num_tokens >= 1,
                   "[category_encoding] expected num_tokens of at least 1, got ",
                   this->config().num_tokens);
}

Shape CategoryEncodingLayer::compute_output_shape(const Shape& input_shape) const {
  return internal::encoded_shape(input_shape, config().output_mode, config().num_tokens);
}

ElementSpec CategoryEncodingLayer::compute_output_spec(const ElementSpec& inputs) const {
  return spec_of_categories(inputs, config().output_mode, config().num_tokens,
                            config().dtype.variable_dtype());
}

Tensor CategoryEncodingLayer::call(const Tensor& x, const CallArgs&) {
  return internal::encode_categories(x, config().output_mode, config().num_tokens,
                                     config().dtype.variable_dtype());
}

Element CategoryEncodingLayer::call_nest(const Element& inputs, const CallArgs& args) {
  if (inputs.size() == 1) return call(inputs[0].tensor(), args);
  COHORT_CHECK_ARG(inputs.size() == 2 && config().output_mode == "count", "[", name(),
                   "] expected categories, or in output_mode count {categories, weights}, got ",
                   inputs.spec().to_string());
  return internal::encode_categories(inputs[0].tensor(), config().output_mode, config().num_tokens,
                                     config().dtype.variable_dtype(), inputs[1].tensor());
}

CategoryEncoding::CategoryEncoding(int64_t num_tokens, CategoryEncodingOptions options)
    : Layer(std::make_shared<CategoryEncodingLayer>(
          CategoryEncodingConfig{std::move(options), num_tokens})) {}

DiscretizationLayer::DiscretizationLayer(DiscretizationOptions options)
    : LayerImpl(std::move(options)),
      mode_(internal::output_mode_of("discretization", config().output_mode, kBinModes)) {
  set_autocast(false);
  const auto& given = config().bin_boundaries;
  COHORT_CHECK_ARG(given || config().num_bins,
                   "[discretization] expected bin_boundaries or num_bins, got neither");
  COHORT_CHECK_ARG(!config().num_bins || *config().num_bins >= 1,
                   "[discretization] expected num_bins of at least 1, got ", *config().num_bins);
  COHORT_CHECK_ARG(config().epsilon > 0 && config().epsilon <= 1,
                   "[discretization] expected 0 < epsilon <= 1, got ", config().epsilon);
  if (!given) return;
  COHORT_CHECK_ARG(std::ranges::is_sorted(*given),
                   "[discretization] expected ascending bin_boundaries");
  set_boundaries(std::vector<float>(given->begin(), given->end()));
}

void DiscretizationLayer::set_boundaries(const std::vector<float>& boundaries) {
  *boundaries_ = from_vector(boundaries, {static_cast<int64_t>(boundaries.size())});
}

std::vector<double> DiscretizationLayer::bin_boundaries() const {
  if (!boundaries_->defined()) return {};
  const auto* const begin = boundaries_->const_data_ptr<float>();
  return {begin, begin + boundaries_->numel()};
}

int64_t DiscretizationLayer::bins() const {
  return boundaries_->defined() ? boundaries_->numel() + 1 : config().num_bins.value_or(0);
}

DType DiscretizationLayer::output_dtype() const {
  return mode_ == "int" ? kInt32 : config().dtype.compute_dtype();
}

Shape DiscretizationLayer::compute_output_shape(const Shape& input_shape) const {
  return internal::encoded_shape(input_shape, mode_, bins());
}

ElementSpec DiscretizationLayer::compute_output_spec(const ElementSpec& inputs) const {
  return spec_of_categories(inputs, mode_, bins(), output_dtype());
}

Tensor DiscretizationLayer::call(const Tensor& x, const CallArgs&) {
  COHORT_CHECK_STATE(boundaries_->defined(), "[", name(),
                     "] expected bin_boundaries, got a layer that has learnt none: call adapt() "
                     "first");
  const bool wide = x.scalar_type() == kFloat64 || x.scalar_type() == kInt64;
  const DType dtype = wide ? kFloat64 : kFloat32;
  const Tensor numbers = at::bucketize(x.detach().to(at::kCPU, dtype), boundaries_->to(dtype),
                                       /*out_int32=*/true, /*right=*/true);
  return internal::encode_categories(numbers, mode_, bins(), output_dtype()).to(x.device());
}

Config DiscretizationLayer::get_config() const {
  Config config = internal::config_without(LayerImpl::get_config(), "trainable");
  config.set("output_mode", mode_);
  config.set("dtype", dtype_name(this->config().dtype.variable_dtype()));
  if (boundaries_->defined() && this->config().num_bins) {  // learnt, if only by another layer
    config.set("bin_boundaries", ConfigValue<std::vector<double>>::write(bin_boundaries()));
  }
  return config;
}

void DiscretizationLayer::begin_learning() {
  COHORT_CHECK_STATE(config().num_bins,
                     "[adapt] expected a layer that is to learn its bins, got \"", name(),
                     "\", which was given bin_boundaries: give it num_bins instead");
  summary_ = {};
}

// Every so many-th value stands for as many, 1 / epsilon of them.
DiscretizationLayer::Summary DiscretizationLayer::summary_of(std::vector<float> values,
                                                             double epsilon) {
  std::ranges::sort(values, comes_before);
  const double step = std::max(static_cast<double>(values.size()) / (1.0 / epsilon), 1.0);
  Summary summary;
  const auto stride = static_cast<std::size_t>(step);
  for (auto i = static_cast<std::size_t>(step - 1); i < values.size(); i += stride) {
    summary.values.push_back(values[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  return summary;
}

DiscretizationLayer::Summary DiscretizationLayer::compressed(const Summary& summary,
                                                             double epsilon) {
  const std::size_t count = summary.values.size();
  if (static_cast<double>(count) * epsilon < 1) return summary;
  std::vector<float> sums(count);
  std::partial_sum(summary.weights.begin(), summary.weights.end(), sums.begin());
  std::vector<float> shares(count);
  for (std::size_t i = 0; i < count; ++i) shares[i] = sums[i] / sums.back();
  Summary out;
  double before = 0;
  const auto steps = static_cast<int64_t>(std::ceil(1.0 / epsilon));
  for (int64_t i = 0; i < steps; ++i) {
    const double share = epsilon + static_cast<double>(i) * epsilon;
    const double sum = interpolated(share, shares, sums);
    out.values.push_back(static_cast<float>(interpolated(share, shares, summary.values)));
    out.weights.push_back(static_cast<float>(sum - before));
    before = sum;
  }
  return out;
}

void DiscretizationLayer::learn(const Element& batch) {
  const Tensor x = batch.tensor().detach().to(at::kCPU, kFloat32).contiguous();
  const auto* const begin = x.const_data_ptr<float>();
  const Summary next = summary_of({begin, begin + x.numel()}, config().epsilon);
  std::vector<std::pair<float, float>> pairs;
  const auto add = [&pairs](const Summary& one) {
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      pairs.emplace_back(one.values[i], one.weights[i]);
    }
  };
  add(next);
  add(summary_);
  std::ranges::stable_sort(pairs, comes_before, &std::pair<float, float>::first);
  Summary merged;
  for (const auto& [value, weight] : pairs) {
    merged.values.push_back(value);
    merged.weights.push_back(weight);
  }
  summary_ = compressed(merged, config().epsilon);
}

void DiscretizationLayer::finish_learning() {
  COHORT_CHECK_ARG(!summary_.values.empty(), "[adapt] expected data for \"", name(),
                   "\", got no values");
  const double share = 1.0 / static_cast<double>(*config().num_bins);
  std::vector<float> boundaries = compressed(summary_, share).values;
  boundaries.pop_back();
  set_boundaries(boundaries);
}

TrackedParts DiscretizationLayer::tracked_parts() const {
  TrackedParts parts = LayerImpl::tracked_parts();
  if (!config().num_bins) return parts;
  const std::shared_ptr<Tensor> boundaries = boundaries_;
  parts.values.push_back(tracked_bytes(
      "bin_boundaries",
      [boundaries] {
        if (!boundaries->defined()) return std::string();
        return std::string(static_cast<const char*>(boundaries->const_data_ptr()),
                           boundaries->nbytes());
      },
      [boundaries](std::string_view bytes) {
        const auto count = static_cast<int64_t>(bytes.size() / sizeof(float));
        Tensor read = empty({count}, kFloat32);
        std::memcpy(read.mutable_data_ptr(), bytes.data(), read.nbytes());
        *boundaries = bytes.empty() ? Tensor() : read;
      }));
  return parts;
}

Discretization::Discretization(DiscretizationOptions options)
    : AdaptingHandle(std::make_shared<DiscretizationLayer>(std::move(options))) {}

std::vector<double> Discretization::bin_boundaries() const {
  return static_cast<DiscretizationLayer&>(use()).bin_boundaries();
}

}  // namespace cohort::keras
