// SPDX-License-Identifier: Apache-2.0
//
// Colours of images [b, h, w, c]: the arithmetic of the layers that change them, with the numbers
// that come out of Keras on TensorFlow. Differentiable where recording is on.
#pragma once

#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// What lies in [from_low, from_high] moved to [to_low, to_high].
Tensor rescaled(const Tensor& images, double from_low, double from_high, double to_low,
                double to_high);
/// [b, h, w, 1] by the weights of brightness. Errors: InvalidArgument for other channels than 1 or
/// 3, prefixed by `who`.
Tensor to_grayscale(const Tensor& images, const std::string& who);
/// Hue and saturation in [0, 1], and the largest value. Errors: as to_grayscale, but for 3 only.
Tensor rgb_to_hsv(const Tensor& images, const std::string& who);
Tensor hsv_to_rgb(const Tensor& images);
/// Each channel by itself with the kernel [k, l], as large as before with zeros around.
Tensor blurred(const Tensor& images, const Tensor& kernel);
/// A kernel of this size; sigma along the columns of it, then along its rows.
Tensor gaussian_kernel(int64_t height, int64_t width, double sigma_x, double sigma_y,
                       const Tensor& like);

}  // namespace cohort::keras::internal
