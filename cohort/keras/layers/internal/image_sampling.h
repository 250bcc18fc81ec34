// SPDX-License-Identifier: Apache-2.0
//
// Images [b, h, w, c] read at other places than their pixels, with TensorFlow's numbers.
// Differentiable in the images where recording is on.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// What lies outside of an image.
enum class FillMode {
  kConstant,  ///< One value.
  kNearest,   ///< The pixels of the border.
  kReflect,   ///< The image, mirrored at its border.
  kWrap,      ///< The image again.
};
/// Errors: InvalidArgument that says the names, prefixed by `who`.
FillMode fill_mode_of(const std::string& who, const std::string& name);

struct Sampling {
  bool nearest = false;  ///< Else bilinear.
  FillMode fill_mode = FillMode::kReflect;
  double fill_value = 0;
};
/// Of the options of a layer. Errors: InvalidArgument for other names.
Sampling sampling_of(const std::string& who, const std::string& interpolation,
                     const std::string& fill_mode, double fill_value);

/// The image at the columns x and the rows y. Shapes: x and y [b, h', w'] -> [b, h', w', c].
Tensor sample(const Tensor& images, const Tensor& x, const Tensor& y, const Sampling& how);
/// Pixel (x, y) of the result is ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k) of the image,
/// where k = c0 x + c1 y + 1. Shapes: transforms [b, 8]: a0, a1, a2, b0, b1, b2, c0, c1. TF:
/// ImageProjectiveTransformV3.
Tensor projected(const Tensor& images, const Tensor& transforms, const Sampling& how);
/// The transform that takes the points `to` back to `from`. Shapes: [b, 4, 2] each -> [b, 8].
Tensor homography(const Tensor& from, const Tensor& to);

/// data::resize_image, but differentiable; "nearest", "bilinear", "bicubic", "area", "lanczos3"
/// or "lanczos5". An empty batch stays one.
/// Errors: InvalidArgument for other names, prefixed by `who`.
Tensor resized(const std::string& who, const Tensor& images, int64_t height, int64_t width,
               const std::string& interpolation, bool antialias);

}  // namespace cohort::keras::internal
