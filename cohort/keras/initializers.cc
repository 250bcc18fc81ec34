// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/initializers.h"

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_qr.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "cohort/base/check.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

using Seed = std::optional<uint64_t>;

// A given seed repeats its values; without one, every weight is an operation of its own.
cohort::internal::RandomStream stream_of(const Seed& seed) {
  if (seed) return {*seed, 0, 0, -1};
  return {cohort::internal::next_operation_number(), 0, -1};
}

// Fills in the dtype's own precision, other floating types through float32.
template <class Fill>
Tensor filled(const Shape& shape, DType dtype, Fill fill) {
  COHORT_CHECK_ARG(at::isFloatingType(dtype), "[initializer] expected a floating type, got ",
                   dtype_name(dtype));
  if (dtype == kFloat64) {
    Tensor out = empty(shape, kFloat64);
    fill(std::span(out.data_ptr<double>(), static_cast<std::size_t>(out.numel())));
    return out;
  }
  Tensor out = empty(shape, kFloat32);
  fill(std::span(out.data_ptr<float>(), static_cast<std::size_t>(out.numel())));
  return out.to(dtype);
}

template <class T>
T as(double value) {
  return static_cast<T>(value);
}

Tensor normal(const Shape& shape, DType dtype, const RandomOptions& o) {
  return filled(shape, dtype, [&]<class T>(std::span<T> out) {
    cohort::internal::fill_normal(stream_of(o.seed), as<T>(o.mean), as<T>(o.stddev), out);
  });
}

Tensor truncated_normal(const Shape& shape, DType dtype, const RandomOptions& o) {
  return filled(shape, dtype, [&]<class T>(std::span<T> out) {
    cohort::internal::fill_truncated_normal(stream_of(o.seed), as<T>(o.mean), as<T>(o.stddev), out);
  });
}

Tensor uniform(const Shape& shape, DType dtype, const RandomUniformOptions& o) {
  return filled(shape, dtype, [&]<class T>(std::span<T> out) {
    cohort::internal::fill_uniform(stream_of(o.seed), as<T>(o.minval), as<T>(o.maxval), out);
  });
}

struct Fans {
  double in = 1;
  double out = 1;
};

Fans fans_of(const Shape& shape) {
  if (shape.empty()) return {};
  const auto size = [&](std::size_t i) { return static_cast<double>(shape[i]); };
  if (shape.size() == 1) return {size(0), size(0)};
  double receptive = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) receptive *= size(i);
  return {size(shape.size() - 2) * receptive, size(shape.size() - 1) * receptive};
}

Tensor variance_scaling(const Shape& shape, DType dtype, const VarianceScalingOptions& o) {
  const Fans fans = fans_of(shape);
  const double fan = o.mode == FanMode::kFanIn    ? fans.in
                     : o.mode == FanMode::kFanOut ? fans.out
                                                  : (fans.in + fans.out) / 2;
  const double variance = o.scale / std::max(1.0, fan);
  if (o.distribution == Distribution::kUniform) {
    const double limit = std::sqrt(3 * variance);
    return uniform(shape, dtype, {.minval = -limit, .maxval = limit, .seed = o.seed});
  }
  const double stddev = std::sqrt(variance);
  if (o.distribution == Distribution::kUntruncatedNormal) {
    return normal(shape, dtype, {.mean = 0, .stddev = stddev, .seed = o.seed});
  }
  // The standard deviation of a normal distribution that is cut at two of its own.
  constexpr double kTruncated = 0.87962566103423978;
  return truncated_normal(shape, dtype, {.mean = 0, .stddev = stddev / kTruncated, .seed = o.seed});
}

Tensor orthogonal(const Shape& shape, DType dtype, double gain, const Seed& seed) {
  COHORT_CHECK_ARG(shape.size() >= 2, "[orthogonal] expected at least 2 axes, got shape ",
                   bracketed(shape));
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const int64_t columns = shape.back();
  const Shape tall = {std::max(rows, columns), std::min(rows, columns)};
  const Tensor flat = normal(tall, kFloat64, {.mean = 0, .stddev = 1, .seed = seed});
  const auto [q, r] = at::linalg_qr(flat);
  const Tensor unique = q.mul(r.diagonal().sign());  // of the two signs each, always the same
  const Tensor out = rows < columns ? unique.t() : unique;
  return out.reshape(shape).mul(gain).to(dtype).contiguous();
}

using Maker = Initializer (*)();
const std::map<std::string, Maker>& table() {
  static const auto* makers = new std::map<std::string, Maker>{
      {"constant", [] { return Constant(0); }},
      {"glorot_normal", [] { return GlorotNormal(); }},
      {"glorot_uniform", [] { return GlorotUniform(); }},
      {"he_normal", [] { return HeNormal(); }},
      {"he_uniform", [] { return HeUniform(); }},
      {"identity", [] { return Identity(); }},
      {"lecun_normal", [] { return LecunNormal(); }},
      {"lecun_uniform", [] { return LecunUniform(); }},
      {"normal", [] { return RandomNormal(); }},
      {"ones", [] { return Ones(); }},
      {"orthogonal", [] { return Orthogonal(); }},
      {"random_normal", [] { return RandomNormal(); }},
      {"random_uniform", [] { return RandomUniform(); }},
      {"truncated_normal", [] { return TruncatedNormal(); }},
      {"uniform", [] { return RandomUniform(); }},
      {"variance_scaling", [] { return VarianceScaling(); }},
      {"zeros", [] { return Zeros(); }},
  };
  return *makers;
}

Initializer by_name(const std::string& name) {
  const auto found = table().find(name);
  std::vector<std::string> names;
  for (const auto& [known, maker] : table()) names.push_back(known);
  COHORT_CHECK_ARG(found != table().end(), "[initializer] expected one of ", join(names, ", "),
                   ", got ", name);
  return found->second();
}

Initializer scaled(double scale, FanMode mode, Distribution distribution, const Seed& seed) {
  return VarianceScaling(
      {.scale = scale, .mode = mode, .distribution = distribution, .seed = seed});
}

}  // namespace

Initializer::Initializer(const char* name) : Initializer(by_name(name)) {}
Initializer::Initializer(const std::string& name) : Initializer(by_name(name)) {}

Initializer Zeros() { return Constant(0); }
Initializer Ones() { return Constant(1); }
Initializer Constant(double value) {
  return {[value](const Shape& shape, DType dtype) { return full(shape, value, dtype); }};
}
Initializer Identity(double gain) {
  return {[gain](const Shape& shape, DType dtype) -> Tensor {
    COHORT_CHECK_ARG(shape.size() == 2, "[identity] expected 2 axes, got shape ", bracketed(shape));
    return at::eye(shape[0], shape[1], at::TensorOptions().dtype(dtype)) * gain;
  }};
}
Initializer Orthogonal(double gain, Seed seed) {
  return {[gain, seed](const Shape& s, DType t) { return orthogonal(s, t, gain, seed); }};
}

Initializer RandomNormal(RandomOptions options) {
  return {[options](const Shape& s, DType t) { return normal(s, t, options); }};
}
Initializer TruncatedNormal(RandomOptions options) {
  return {[options](const Shape& s, DType t) { return truncated_normal(s, t, options); }};
}
Initializer RandomUniform(RandomUniformOptions options) {
  return {[options](const Shape& s, DType t) { return uniform(s, t, options); }};
}
Initializer VarianceScaling(VarianceScalingOptions options) {
  COHORT_CHECK_ARG(options.scale > 0, "[variance_scaling] expected scale > 0, got ", options.scale);
  return {[options](const Shape& s, DType t) { return variance_scaling(s, t, options); }};
}

Initializer GlorotUniform(Seed seed) {
  return scaled(1, FanMode::kFanAvg, Distribution::kUniform, seed);
}
Initializer GlorotNormal(Seed seed) {
  return scaled(1, FanMode::kFanAvg, Distribution::kTruncatedNormal, seed);
}
Initializer HeUniform(Seed seed) {
  return scaled(2, FanMode::kFanIn, Distribution::kUniform, seed);
}
Initializer HeNormal(Seed seed) {
  return scaled(2, FanMode::kFanIn, Distribution::kTruncatedNormal, seed);
}
Initializer LecunUniform(Seed seed) {
  return scaled(1, FanMode::kFanIn, Distribution::kUniform, seed);
}
Initializer LecunNormal(Seed seed) {
  return scaled(1, FanMode::kFanIn, Distribution::kTruncatedNormal, seed);
}

}  // namespace cohort::keras
