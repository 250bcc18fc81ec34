// SPDX-License-Identifier: Apache-2.0
//
// Every method is separable: weights along y times weights along x. Rows are summed first, into
// one line as wide as the image, and the line's pixels then.
#include "cohort/data/image/internal/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace cohort::internal::data {
namespace {

using cohort::data::ResizeMethod;

/// The pixels of the image that one of the result is the sum of.
struct Span {
  int64_t begin = 0;
  int64_t count = 0;
  std::size_t first_weight = 0;
};

/// Of all pixels along one axis.
struct Spans {
  std::vector<Span> spans;
  std::vector<float> weights;

  void clear() {
    spans.clear();
    weights.clear();
  }
  void open(int64_t begin) { spans.push_back({begin, 0, weights.size()}); }
  void add(float weight) {
    weights.push_back(weight);
    ++spans.back().count;
  }
  /// Makes the last span's weights sum up to 1.
  void normalize() {
    const auto begin = weights.begin() + static_cast<std::ptrdiff_t>(spans.back().first_weight);
    float sum = 0;
    for (auto at = begin; at != weights.end(); ++at) sum += *at;
    if (std::abs(sum) < 1e-35F) return;
    for (auto at = begin; at != weights.end(); ++at) *at *= 1 / sum;
  }
};

// --- Kernels, of the distance from the middle ----------------------------------------------------

struct Kernel {
  float radius;
  float (*weight)(float distance);
};

float triangle(float x) { return std::max(0.F, 1 - x); }

/// The cubic that is 1 at 0 and 0 at the other integers, with a slope of -1/2 at 1.
float keys_cubic(float x) {
  if (x >= 2) return 0;
  if (x >= 1) return ((-0.5F * x + 2.5F) * x - 4) * x + 2;
  return (1.5F * x - 2.5F) * x * x + 1;
}

/// The cubic of Mitchell and Netravali with B = C = 1/3.
float mitchell_cubic(float x) {
  if (x >= 2) return 0;
  if (x >= 1) return ((-7.F / 18 * x + 2) * x - 10.F / 3) * x + 16.F / 9;
  return (7.F / 6 * x - 2) * x * x + 8.F / 9;
}

/// A deviation of 1/2, cut off at three of them.
float gaussian(float x) { return x >= 1.5F ? 0 : std::exp(-2 * x * x); }

template <int R>
float lanczos(float x) {
  constexpr float kPi = std::numbers::pi_v<float>;
  if (x > R) return 0;
  if (x <= 1e-3F) return 1;
  return R * std::sin(kPi * x) * std::sin(kPi * x / R) / (kPi * kPi * x * x);
}

Kernel kernel_of(ResizeMethod method) {
  switch (method) {
    case ResizeMethod::kBicubic:
      return {2, keys_cubic};
    case ResizeMethod::kMitchellCubic:
      return {2, mitchell_cubic};
    case ResizeMethod::kGaussian:
      return {1.5F, gaussian};
    case ResizeMethod::kLanczos3:
      return {3, lanczos<3>};
    case ResizeMethod::kLanczos5:
      return {5, lanczos<5>};
    default:
      return {1, triangle};
  }
}

// --- Weights along one axis ----------------------------------------------------------------------

/// A kernel around each point; antialias widens it where the result is smaller.
void kernel_spans(int64_t from, int64_t to, const Kernel& kernel, bool antialias, Spans& out) {
  const float step = 1 / (static_cast<float>(to) / static_cast<float>(from));
  const float stretch = antialias ? std::max(step, 1.F) : 1.F;
  const float reach = kernel.radius * stretch;
  for (int64_t i = 0; i < to; ++i) {
    const float at = (static_cast<float>(i) + 0.5F) * step;
    const auto low = static_cast<int64_t>(std::ceil(at - reach - 0.5F));
    const auto high = static_cast<int64_t>(std::floor(at + reach - 0.5F));
    const int64_t begin = std::clamp<int64_t>(low, 0, from - 1);
    const int64_t last = std::clamp<int64_t>(high, 0, from - 1);
    out.open(begin);
    for (int64_t p = begin; p <= last; ++p) {
      out.add(kernel.weight(std::abs(static_cast<float>(p) + 0.5F - at) * (1 / stretch)));
    }
    out.normalize();
  }
}

/// The cubic at four pixels; places between pixels are rounded to 1/1024, as TensorFlow does
/// without antialias.
void cubic_spans(int64_t from, int64_t to, Spans& out) {
  constexpr float kPlaces = 1024;
  const float step = static_cast<float>(from) / static_cast<float>(to);
  for (int64_t i = 0; i < to; ++i) {
    const float at = (static_cast<float>(i) + 0.5F) * step - 0.5F;
    const float floor = std::floor(at);
    const float part = std::nearbyint((at - floor) * kPlaces) / kPlaces;
    const int64_t low = static_cast<int64_t>(floor) - 1;
    const int64_t begin = std::clamp<int64_t>(low, 0, from - 1);
    const int64_t last = std::clamp<int64_t>(low + 3, 0, from - 1);
    out.open(begin);
    for (int64_t p = begin; p <= last; ++p) {
      out.add(keys_cubic(std::abs(static_cast<float>(p - low - 1) - part)));
    }
    out.normalize();
  }
}

/// The part of each pixel that the result's pixel covers.
void area_spans(int64_t from, int64_t to, Spans& out) {
  const float step = static_cast<float>(from) / static_cast<float>(to);
  for (int64_t i = 0; i < to; ++i) {
    const float low = static_cast<float>(i) * step;
    const float high = static_cast<float>(i + 1) * step;
    const auto begin = std::min(static_cast<int64_t>(low), from - 1);
    const auto end = std::clamp(static_cast<int64_t>(std::ceil(high)), begin + 1, from);
    out.open(begin);
    for (int64_t p = begin; p < end; ++p) {
      const auto edge = static_cast<float>(p);
      out.add((std::min(edge + 1, high) - std::max(edge, low)) / step);
    }
  }
}

void find_spans(int64_t from, int64_t to, ResizeMethod method, bool antialias, Spans& out) {
  out.clear();
  if (method == ResizeMethod::kArea) return area_spans(from, to, out);
  if (method == ResizeMethod::kBicubic && !antialias) return cubic_spans(from, to, out);
  kernel_spans(from, to, kernel_of(method), antialias, out);
}

// --- Sums ----------------------------------------------------------------------------------------

template <class T>
void sum_rows(const PixelView<T>& image, const Span& span, const float* weights,
              std::vector<float>& line) {
  const auto values = static_cast<std::size_t>(image.width * image.channels);
  for (int64_t k = 0; k < span.count; ++k) {
    const T* row = image.data + (span.begin + k) * image.row_stride;
    const float weight = weights[k];
    if (k == 0) {
      for (std::size_t v = 0; v < values; ++v) line[v] = weight * static_cast<float>(row[v]);
    } else {
      for (std::size_t v = 0; v < values; ++v) line[v] += weight * static_cast<float>(row[v]);
    }
  }
}

template <std::size_t C>
void sum_pixels(const Spans& columns, const float* line, float* out) {
  for (const Span& span : columns.spans) {
    const float* pixel = line + static_cast<std::size_t>(span.begin) * C;
    const float* weight = columns.weights.data() + span.first_weight;
    std::array<float, C> sum{};
    for (int64_t k = 0; k < span.count; ++k, pixel += C) {
      for (std::size_t c = 0; c < C; ++c) sum[c] += weight[k] * pixel[c];
    }
    out = std::copy(sum.begin(), sum.end(), out);
  }
}

void sum_pixels(const Spans& columns, const float* line, int64_t channels, float* out) {
  switch (channels) {
    case 1:
      return sum_pixels<1>(columns, line, out);
    case 3:
      return sum_pixels<3>(columns, line, out);
    case 4:
      return sum_pixels<4>(columns, line, out);
    default:
      break;
  }
  for (const Span& span : columns.spans) {
    for (int64_t c = 0; c < channels; ++c) {
      float sum = 0;
      for (int64_t k = 0; k < span.count; ++k) {
        sum += columns.weights[span.first_weight + static_cast<std::size_t>(k)] *
               line[(span.begin + k) * channels + c];
      }
      *out++ = sum;
    }
  }
}

struct Scratch {
  Spans rows;
  Spans columns;
  std::vector<float> line;  ///< A row of the result, as wide as the image.
};

}  // namespace

template <class T>
void resize_mixed(const PixelView<T>& image, int64_t height, int64_t width, ResizeMethod method,
                  bool antialias, float* out) {
  if (method == ResizeMethod::kBilinear && !antialias) {
    return resize_bilinear(image, height, width, out);
  }
  static thread_local Scratch scratch;  // Serves one image after the other.
  find_spans(image.height, height, method, antialias, scratch.rows);
  find_spans(image.width, width, method, antialias, scratch.columns);
  scratch.line.resize(static_cast<std::size_t>(image.width * image.channels));
  for (const Span& span : scratch.rows.spans) {
    sum_rows(image, span, scratch.rows.weights.data() + span.first_weight, scratch.line);
    sum_pixels(scratch.columns, scratch.line.data(), image.channels, out);
    out += width * image.channels;
  }
}
template void resize_mixed(const PixelView<uint8_t>&, int64_t, int64_t, ResizeMethod, bool, float*);
template void resize_mixed(const PixelView<float>&, int64_t, int64_t, ResizeMethod, bool, float*);

}  // namespace cohort::internal::data
