// SPDX-License-Identifier: Apache-2.0
//
// Images in other sizes: tf.image.resize's numbers.
#pragma once

#include <cstdint>

namespace cohort::internal::data {

/// A window of an image in memory.
template <class T>
struct PixelView {
  const T* data = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t row_stride = 0;  ///< Values from row to row.
};

/// Writes [height, width, channels] of floats. T: uint8_t or float. Threads: thread-safe.
template <class T>
void resize_bilinear(const PixelView<T>& image, int64_t height, int64_t width, float* out);

/// Copies whole pixels: `channels` and the stride count bytes.
void resize_nearest(const PixelView<uint8_t>& image, int64_t height, int64_t width, uint8_t* out);

}  // namespace cohort::internal::data
