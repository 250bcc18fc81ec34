// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/image_colors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "cohort/base/check.h"

namespace cohort::keras::internal {

Tensor rescaled(const Tensor& images, double from_low, double from_high, double to_low,
                double to_high) {
  if (from_low == to_low && from_high == to_high) return images;
  return (images - from_low) / (from_high - from_low) * (to_high - to_low) + to_low;
}

Tensor to_grayscale(const Tensor& images, const std::string& who) {
  const int64_t channels = images.size(-1);
  COHORT_CHECK_ARG(channels == 1 || channels == 3, "[", who,
                   "] expected images with 1 or 3 channels, got ", channels);
  if (channels == 1) return images;
  return (images.select(-1, 0) * 0.2989 + images.select(-1, 1) * 0.5870 +
          images.select(-1, 2) * 0.1140)
      .unsqueeze(-1);
}

Tensor rgb_to_hsv(const Tensor& images, const std::string& who) {
  COHORT_CHECK_ARG(images.size(-1) == 3, "[", who, "] expected images with 3 channels, got ",
                   images.size(-1));
  const Tensor r = images.select(-1, 0), g = images.select(-1, 1), b = images.select(-1, 2);
  const Tensor value = images.amax(-1), range = value - images.amin(-1);
  const Tensor none = range.eq(0);
  const Tensor saturation =
      at::where(value > 0, range / value.masked_fill(value.le(0), 1), at::zeros_like(value));
  const Tensor norm = 1 / (6 * range.masked_fill(none, 1));
  Tensor hue =
      at::where(r.eq(value), norm * (g - b),
                at::where(g.eq(value), norm * (b - r) + 2.0 / 6.0, norm * (r - g) + 4.0 / 6.0));
  hue = hue.masked_fill(none, 0);
  hue = at::where(hue < 0, hue + 1, hue);
  return at::stack({hue, saturation, value}, -1);
}

Tensor hsv_to_rgb(const Tensor& images) {
  const Tensor hue = images.select(-1, 0) * 6, saturation = images.select(-1, 1);
  const Tensor value = images.select(-1, 2);
  const Tensor red = ((hue - 3).abs() - 1).clamp(0, 1);
  const Tensor green = (2 - (hue - 2).abs()).clamp(0, 1);
  const Tensor blue = (2 - (hue - 4).abs()).clamp(0, 1);
  const Tensor rest = 1 - saturation;
  return at::stack({(rest + saturation * red) * value, (rest + saturation * green) * value,
                    (rest + saturation * blue) * value},
                   -1);
}

Tensor blurred(const Tensor& images, const Tensor& kernel) {
  const int64_t channels = images.size(-1), h = kernel.size(0), w = kernel.size(1);
  const Tensor filters = kernel.to(images.options()).expand({channels, 1, h, w}).contiguous();
  // Where a side is even, one row more behind than ahead, as TensorFlow's SAME.
  const Tensor padded =
      at::constant_pad_nd(images.movedim(-1, 1), {(w - 1) / 2, w / 2, (h - 1) / 2, h / 2}, 0);
  const Shape one = {1, 1}, none = {0, 0};
  return at::convolution(padded, filters, {}, one, none, one, false, none, channels).movedim(1, -1);
}

Tensor gaussian_kernel(int64_t height, int64_t width, double sigma_x, double sigma_y,
                       const Tensor& like) {
  const auto bell = [&](int64_t size, double sigma) {
    const Tensor x = at::arange(size, like.options()) - static_cast<double>(size - 1) / 2;
    const Tensor y = (-0.5 * (x / sigma).square()).exp();
    return y / y.sum();
  };
  return bell(height, sigma_y).unsqueeze(1) * bell(width, sigma_x).unsqueeze(0);
}

}  // namespace cohort::keras::internal
