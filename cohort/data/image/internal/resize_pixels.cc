// SPDX-License-Identifier: Apache-2.0
//
// Pixel x of the result lies at (x + 0.5) * scale - 0.5 of the image, in floats and in this order,
// so that the numbers are TensorFlow's to the last bit. Rows are mixed along x first; the two that
// the last row of the result needed are kept for the next.
#include "cohort/data/image/internal/resize_pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace cohort::internal::data {
namespace {

/// The two pixels that one of the result lies between.
struct Tap {
  int64_t low = 0;  ///< Values from the start, or a row.
  int64_t high = 0;
  float part = 0;  ///< Of the higher one.
};

void find_taps(int64_t from, int64_t to, int64_t step, std::vector<Tap>& taps) {
  taps.resize(static_cast<std::size_t>(to));
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (int64_t i = 0; i < to; ++i) {
    const float at = (static_cast<float>(i) + 0.5F) * scale - 0.5F;
    const float floor = std::floor(at);
    const auto low = std::max<int64_t>(static_cast<int64_t>(floor), 0);
    const auto high = std::min<int64_t>(static_cast<int64_t>(std::ceil(at)), from - 1);
    taps[static_cast<std::size_t>(i)] = {std::min(low, from - 1) * step, high * step, at - floor};
  }
}

float mix(float low, float high, float part) { return low + (high - low) * part; }

/// C: channels, or 0 where the compiler does not know them.
template <int64_t C, class T>
void mix_row(const T* row, const std::vector<Tap>& taps, int64_t channels, float* out) {
  const int64_t count = C == 0 ? channels : C;
  for (const Tap& tap : taps) {
    for (int64_t c = 0; c < count; ++c) {
      out[c] = mix(static_cast<float>(row[tap.low + c]), static_cast<float>(row[tap.high + c]),
                   tap.part);
    }
    out += count;
  }
}

#if defined(__SSE2__)

__m128 load_pixel(const uint8_t* bytes) {
  int packed = 0;
  std::memcpy(&packed, bytes, sizeof(packed));
  const __m128i zero = _mm_setzero_si128();
  const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(packed), zero);
  return _mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero));
}

/// Three channels as four: reads one byte and writes one float past a pixel, so the last pixels of
/// the row are left to mix_row. Returns how many it did.
std::size_t mix_rgb(const uint8_t* row, const std::vector<Tap>& taps, int64_t row_values,
                    float* out) {
  std::size_t i = 0;
  for (; i + 1 < taps.size() && taps[i].high + 4 <= row_values; ++i) {
    const __m128 low = load_pixel(row + taps[i].low);
    const __m128 high = load_pixel(row + taps[i].high);
    const __m128 part = _mm_set1_ps(taps[i].part);
    _mm_storeu_ps(out + 3 * i, _mm_add_ps(low, _mm_mul_ps(_mm_sub_ps(high, low), part)));
  }
  return i;
}

#endif

/// Two rows of the image as one of the result.
void mix_rows(const float* low, const float* high, float part, std::size_t values, float* out) {
  std::size_t i = 0;
#if defined(__SSE2__)
  const __m128 parts = _mm_set1_ps(part);
  for (; i + 4 <= values; i += 4) {
    const __m128 from = _mm_loadu_ps(low + i);
    const __m128 way = _mm_sub_ps(_mm_loadu_ps(high + i), from);
    _mm_storeu_ps(out + i, _mm_add_ps(from, _mm_mul_ps(way, parts)));
  }
#endif
  for (; i < values; ++i) out[i] = mix(low[i], high[i], part);
}

struct PixelScratch {
  std::vector<Tap> columns;
  std::vector<Tap> rows;
  std::vector<float> low;   ///< Row `low_row` of the image, as wide as the result.
  std::vector<float> high;  ///< Row `high_row`.
};

template <class T>
void mix_columns(const PixelView<T>& image, int64_t y, const std::vector<Tap>& taps,
                 std::vector<float>& out) {
  const T* row = image.data + y * image.row_stride;
  float* to = out.data();
  switch (image.channels) {
    case 1:
      return mix_row<1>(row, taps, 1, to);
    case 3: {
#if defined(__SSE2__)
      if constexpr (sizeof(T) == 1) {
        const std::size_t done = mix_rgb(row, taps, image.width * 3, to);
        for (std::size_t i = done; i < taps.size(); ++i) {
          for (std::size_t c = 0; c < 3; ++c) {
            to[3 * i + c] = mix(row[taps[i].low + static_cast<int64_t>(c)],
                                row[taps[i].high + static_cast<int64_t>(c)], taps[i].part);
          }
        }
        return;
      }
#endif
      return mix_row<3>(row, taps, 3, to);
    }
    case 4:
      return mix_row<4>(row, taps, 4, to);
    default:
      return mix_row<0>(row, taps, image.channels, to);
  }
}

}  // namespace

template <class T>
void resize_bilinear(const PixelView<T>& image, int64_t height, int64_t width, float* out) {
  static thread_local PixelScratch scratch;  // Serves one image after the other.
  const auto values = static_cast<std::size_t>(width * image.channels);
  find_taps(image.width, width, image.channels, scratch.columns);
  find_taps(image.height, height, 1, scratch.rows);
  scratch.low.resize(values);
  scratch.high.resize(values);
  int64_t low_row = -1;
  int64_t high_row = -1;
  for (const Tap& tap : scratch.rows) {
    if (low_row != tap.low && high_row == tap.low) {
      std::swap(scratch.low, scratch.high);
      std::swap(low_row, high_row);
    }
    if (low_row != tap.low) mix_columns(image, tap.low, scratch.columns, scratch.low);
    low_row = tap.low;
    if (high_row != tap.high) mix_columns(image, tap.high, scratch.columns, scratch.high);
    high_row = tap.high;
    mix_rows(scratch.low.data(), scratch.high.data(), tap.part, values, out);
    out += values;
  }
}
template void resize_bilinear(const PixelView<uint8_t>&, int64_t, int64_t, float*);
template void resize_bilinear(const PixelView<float>&, int64_t, int64_t, float*);

void resize_nearest(const PixelView<uint8_t>& image, int64_t height, int64_t width, uint8_t* out) {
  const auto nearest = [](int64_t i, int64_t from, int64_t to) {
    const float scale = static_cast<float>(from) / static_cast<float>(to);
    const auto at = static_cast<int64_t>(std::floor((static_cast<float>(i) + 0.5F) * scale));
    return std::clamp<int64_t>(at, 0, from - 1);
  };
  std::vector<int64_t> columns(static_cast<std::size_t>(width));
  for (int64_t x = 0; x < width; ++x) {
    columns[static_cast<std::size_t>(x)] = nearest(x, image.width, width) * image.channels;
  }
  const auto bytes = static_cast<std::size_t>(image.channels);
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row = image.data + nearest(y, image.height, height) * image.row_stride;
    for (int64_t column : columns) {
      std::memcpy(out, row + column, bytes);
      out += bytes;
    }
  }
}

}  // namespace cohort::internal::data
