// SPDX-License-Identifier: Apache-2.0
//
// Images in other sizes as weighted sums of their pixels, by every method but the nearest pixel.
// tf.image.resize's numbers, up to the rounding of sums.
#pragma once

#include <cstdint>

#include "cohort/data/image/image.h"
#include "cohort/data/image/internal/resize_pixels.h"

namespace cohort::internal::data {

/// Writes [height, width, channels] of floats. T: uint8_t or float. `method` is not kNearest.
/// Threads: thread-safe.
template <class T>
void resize_mixed(const PixelView<T>& image, int64_t height, int64_t width,
                  cohort::data::ResizeMethod method, bool antialias, float* out);

}  // namespace cohort::internal::data
