// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/internal/cross_entropy_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "cohort/base/cpu.h"

namespace cohort::keras::internal {
namespace {

constexpr float kEpsilon = 1e-7F;  // keras.config.epsilon()

// exp(x) = 2^n exp(r) with r in [-ln2/2, ln2/2]: ln2 in two parts keeps r exact, and a polynomial
// of degree 6 (Taylor's, its last coefficients fitted to the interval) gives exp(r). NaN stays NaN.
[[gnu::always_inline]] inline float exp_of_negative(float x) {
  constexpr float kSmallest = -87.33654F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float in_range = x < kSmallest ? kSmallest : x;
  const float shifted = in_range * 1.44269504F + kRound;
  const float n = shifted - kRound;
  const float r = (in_range - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.3978545e-3F;
  p = p * r + 8.3704561e-3F;
  p = p * r + 4.1665986e-2F;
  p = p * r + 1.6666415e-1F;
  p = p * r + 0.5F;
  p = p * r * r + r + 1.0F;
  const auto exponent = std::bit_cast<uint32_t>(shifted) << 23U;
  const float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
  return x < kSmallest ? 0.0F : (x == x ? scaled : x);
}

[[gnu::always_inline]] inline void exp_all(float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = exp_of_negative(values[i]);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void exp_avx2(float* values, int64_t n) { exp_all(values, n); }
#endif

float clipped(float p) { return std::min(std::max(p, kEpsilon), 1.0F - kEpsilon); }
bool inside(float p) { return p >= kEpsilon && p <= 1.0F - kEpsilon; }

double row_weight(const CrossEntropyRows& in, int64_t row) {
  return in.weights != nullptr ? in.scale * in.weights[row] : in.scale;
}

// The smoothed distribution of one row. Returns it, in `buffer` unless it can be had for nothing.
const float* target_row(const CrossEntropyRows& in, int64_t row, std::vector<float>& buffer) {
  const float* given = in.targets != nullptr ? in.targets + row * in.classes : nullptr;
  if (given != nullptr && in.smoothing == 0) return given;
  const auto keep = static_cast<float>(1 - in.smoothing);
  const auto base = static_cast<float>(in.smoothing / static_cast<double>(in.classes));
  buffer.assign(static_cast<std::size_t>(in.classes), base);
  if (given == nullptr) {
    buffer[static_cast<std::size_t>(in.labels[row])] += keep;
  } else {
    for (int64_t c = 0; c < in.classes; ++c) {
      buffer[static_cast<std::size_t>(c)] += keep * given[c];
    }
  }
  return buffer.data();
}

// Softmax of one row, unnormalised in `exps`; labels without smoothing need no target row.
double finish_labelled_row(const CrossEntropyRows& in, int64_t row, float maximum, float* exps) {
  const int64_t label = in.labels[row];
  float sum = 0;
  for (int64_t c = 0; c < in.classes; ++c) sum += exps[c];
  const float loss = std::log(sum) - (in.scores[row * in.classes + label] - maximum);
  const double weight = row_weight(in, row);
  if (in.wants_gradient) {
    const auto factor = static_cast<float>(weight / sum);
    for (int64_t c = 0; c < in.classes; ++c) exps[c] *= factor;
    exps[label] -= static_cast<float>(weight);
  }
  if (in.losses != nullptr) in.losses[row] = loss;
  return weight * loss;
}

double finish_target_row(const CrossEntropyRows& in, int64_t row, float maximum, float* exps,
                         const float* target) {
  const float* scores = in.scores + row * in.classes;
  float sum = 0;
  float total = 0;
  float dot = 0;
  for (int64_t c = 0; c < in.classes; ++c) {
    sum += exps[c];
    total += target[c];
    // A class without a share must not turn a score of -inf into NaN.
    if (target[c] != 0) dot += target[c] * (scores[c] - maximum);
  }
  const float loss = total * std::log(sum) - dot;
  const double weight = row_weight(in, row);
  if (in.wants_gradient) {
    const auto factor = static_cast<float>(weight * total / sum);
    const auto w = static_cast<float>(weight);
    for (int64_t c = 0; c < in.classes; ++c) exps[c] = exps[c] * factor - w * target[c];
  }
  if (in.losses != nullptr) in.losses[row] = loss;
  return weight * loss;
}

// Rows whose working memory fits the first-level cache are handled together: rows of ten classes
// are too short to fill vectors alone.
double softmax_block(const CrossEntropyRows& in, int64_t first, int64_t last,
                     std::vector<float>& maxima, std::vector<float>& buffer) {
  for (int64_t row = first; row < last; ++row) {
    const float* scores = in.scores + row * in.classes;
    float* out = in.gradient + row * in.classes;
    float maximum = scores[0];
    for (int64_t c = 1; c < in.classes; ++c) maximum = std::max(maximum, scores[c]);
    for (int64_t c = 0; c < in.classes; ++c) out[c] = scores[c] - maximum;
    maxima[static_cast<std::size_t>(row - first)] = maximum;
  }
  exp_of_negatives(in.gradient + first * in.classes, (last - first) * in.classes);
  const bool labelled = in.labels != nullptr && in.smoothing == 0;
  double sum = 0;
  for (int64_t row = first; row < last; ++row) {
    float* exps = in.gradient + row * in.classes;
    const float maximum = maxima[static_cast<std::size_t>(row - first)];
    sum += labelled ? finish_labelled_row(in, row, maximum, exps)
                    : finish_target_row(in, row, maximum, exps, target_row(in, row, buffer));
  }
  return sum;
}

}  // namespace

void exp_of_negatives(float* values, int64_t n) {
#if defined(__x86_64__)
  if (cohort::internal::base::current_isa() >= cohort::internal::base::Isa::kAvx2)
    return exp_avx2(values, n);
#endif
  exp_all(values, n);
}

double softmax_cross_entropy(const CrossEntropyRows& in) {
  constexpr int64_t kBlockElements = 4096;
  const int64_t block = std::max<int64_t>(1, kBlockElements / in.classes);
  thread_local std::vector<float> maxima;
  thread_local std::vector<float> buffer;
  maxima.resize(static_cast<std::size_t>(std::min(block, in.rows)));
  double sum = 0;
  for (int64_t row = 0; row < in.rows; row += block) {
    sum += softmax_block(in, row, std::min(row + block, in.rows), maxima, buffer);
  }
  return sum;
}

double probability_cross_entropy(const CrossEntropyRows& in) {
  thread_local std::vector<float> buffer;
  double sum = 0;
  for (int64_t row = 0; row < in.rows; ++row) {
    const float* p = in.scores + row * in.classes;
    const float* target = target_row(in, row, buffer);
    float total = 0;
    for (int64_t c = 0; c < in.classes; ++c) total += p[c];
    float loss = 0;
    float live = 0;  // the share of the target whose probabilities are not clipped
    for (int64_t c = 0; c < in.classes; ++c) {
      if (target[c] == 0 && p[c] == p[c]) continue;
      loss -= target[c] * std::log(clipped(p[c] / total));
      if (inside(p[c] / total)) live += target[c];
    }
    const double weight = row_weight(in, row);
    if (in.wants_gradient) {
      const auto w = static_cast<float>(weight);
      float* out = in.gradient + row * in.classes;
      for (int64_t c = 0; c < in.classes; ++c) {
        const float own = target[c] != 0 && inside(p[c] / total) ? target[c] / p[c] : 0;
        out[c] = w * (live / total - own);
      }
    }
    if (in.losses != nullptr) in.losses[row] = loss;
    sum += weight * loss;
  }
  return sum;
}

namespace {

// loss(score, target, d loss / d score) of one element, averaged over the row.
template <class F>
double binary_rows(const CrossEntropyRows& in, F element) {
  const auto keep = static_cast<float>(1 - in.smoothing);
  const auto base = static_cast<float>(in.smoothing / 2);
  double sum = 0;
  for (int64_t row = 0; row < in.rows; ++row) {
    const double weight = row_weight(in, row);
    const auto factor = static_cast<float>(weight / static_cast<double>(in.classes));
    float loss = 0;
    for (int64_t c = 0; c < in.classes; ++c) {
      const int64_t i = row * in.classes + c;
      float slope = 0;
      loss += element(in.scores[i], in.targets[i] * keep + base, slope);
      if (in.wants_gradient) in.gradient[i] = factor * slope;
    }
    loss /= static_cast<float>(in.classes);
    if (in.losses != nullptr) in.losses[row] = loss;
    sum += weight * loss;
  }
  return sum;
}

}  // namespace

double sigmoid_cross_entropy(const CrossEntropyRows& in) {
  return binary_rows(in, [](float x, float z, float& slope) {
    const float e = std::exp(-std::fabs(x));
    slope = (x >= 0 ? 1 / (1 + e) : e / (1 + e)) - z;
    return std::max(x, 0.0F) - x * z + std::log1p(e);
  });
}

double binary_probability_entropy(const CrossEntropyRows& in) {
  return binary_rows(in, [](float x, float z, float& slope) {
    const float p = clipped(x);
    slope = inside(x) ? (1 - z) / (1 - p) - z / p : 0;
    return -(z * std::log(p) + (1 - z) * std::log(1 - p));
  });
}

}  // namespace cohort::keras::internal
