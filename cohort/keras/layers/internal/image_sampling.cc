// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/image_sampling.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <utility>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/data/image/image.h"

namespace cohort::keras::internal {
namespace {

// A coordinate along an axis of n pixels, as TensorFlow brings it into the image.
Tensor brought_in(const Tensor& at, int64_t n, FillMode mode) {
  const auto size = static_cast<double>(n);
  switch (mode) {
    case FillMode::kConstant:
      return at.clamp(-2, size + 1);  // which is outside all the same, and a whole number's range
    case FillMode::kNearest:
      return at.clamp(0, size - 1);
    case FillMode::kReflect: {
      // Twice the size is a period: n pixels, and then the same backwards.
      const Tensor low = at + 2 * size * (-at / (2 * size)).trunc();
      const Tensor below = at::where(low < -size, low + 2 * size, -low - 1);
      const Tensor high = at - 2 * size * (at / (2 * size)).trunc();
      const Tensor above = at::where(high >= size, 2 * size - high - 1, high);
      const Tensor in = at::where(at < 0, below, at::where(at > size - 1, above, at));
      return in.clamp(0, size - 1);
    }
    case FillMode::kWrap: {
      if (n == 1) return at::zeros_like(at);
      const Tensor low = at + size * ((-at / (size - 1)).trunc() + 1);
      const Tensor high = at - size * (at / (size - 1)).trunc();
      const Tensor in = at::where(at < 0, low, at::where(at > size - 1, high, at));
      return in.clamp(0, size - 1);
    }
  }
  return at;
}

// Whole coordinates; those outside give the fill value.
Tensor read(const Tensor& images, const Tensor& x, const Tensor& y, double fill_value) {
  const int64_t h = images.size(1), w = images.size(2), channels = images.size(3);
  const Tensor inside = x.ge(0).logical_and(x.lt(w)).logical_and(y.ge(0)).logical_and(y.lt(h));
  const Tensor column = x.clamp(0, w - 1).to(kInt64), row = y.clamp(0, h - 1).to(kInt64);
  const Tensor index = (row * w + column).flatten(1).unsqueeze(-1);
  const Tensor pixels = images.flatten(1, 2)
                            .gather(1, index.expand({index.size(0), index.size(1), channels}))
                            .reshape({images.size(0), x.size(1), x.size(2), channels});
  return pixels.masked_fill(inside.logical_not().unsqueeze(-1), fill_value);
}

data::ResizeMethod method_of(const std::string& who, const std::string& name) {
  using data::ResizeMethod;
  const std::array<std::pair<const char*, ResizeMethod>, 6> methods = {
      {{"bilinear", ResizeMethod::kBilinear},
       {"nearest", ResizeMethod::kNearest},
       {"bicubic", ResizeMethod::kBicubic},
       {"area", ResizeMethod::kArea},
       {"lanczos3", ResizeMethod::kLanczos3},
       {"lanczos5", ResizeMethod::kLanczos5}}};
  std::string names;
  for (const auto& [known, method] : methods) {
    if (name == known) return method;
    names += str_cat(names.empty() ? "" : ", ", known);
  }
  throw InvalidArgument(
      str_cat("[", who, "] expected one of the interpolations ", names, ", got ", name));
}

// What each of m pixels has of each of n, along one axis: [m, n].
Tensor weights(int64_t n, int64_t m, const data::ResizeOptions& options) {
  const Tensor unit = at::eye(n, at::TensorOptions().dtype(kFloat32)).unsqueeze(1);  // [n, 1, n]
  return data::resize_image(unit, m, 1, options).squeeze(1);
}

}  // namespace

FillMode fill_mode_of(const std::string& who, const std::string& name) {
  if (name == "constant") return FillMode::kConstant;
  if (name == "nearest") return FillMode::kNearest;
  if (name == "wrap") return FillMode::kWrap;
  COHORT_CHECK_ARG(name == "reflect", "[", who,
                   "] expected fill_mode reflect, constant, nearest or wrap, got ", name);
  return FillMode::kReflect;
}

Sampling sampling_of(const std::string& who, const std::string& interpolation,
                     const std::string& fill_mode, double fill_value) {
  COHORT_CHECK_ARG(interpolation == "nearest" || interpolation == "bilinear", "[", who,
                   "] expected interpolation nearest or bilinear, got ", interpolation);
  return {.nearest = interpolation == "nearest",
          .fill_mode = fill_mode_of(who, fill_mode),
          .fill_value = fill_value};
}

Tensor sample(const Tensor& images, const Tensor& x, const Tensor& y, const Sampling& how) {
  const Tensor column = brought_in(x.nan_to_num(-2.0), images.size(2), how.fill_mode);
  const Tensor row = brought_in(y.nan_to_num(-2.0), images.size(1), how.fill_mode);
  const auto pixel = [&](const Tensor& at_x, const Tensor& at_y) {
    return read(images, at_x, at_y, how.fill_value);
  };
  if (how.nearest) {
    // Halves go away from 0.
    const auto rounded = [](const Tensor& at) { return (at.abs() + 0.5).floor() * at.sign(); };
    return pixel(rounded(column), rounded(row));
  }
  const Tensor left = column.floor(), top = row.floor();
  const Tensor right_part = (column - left).unsqueeze(-1).to(images.scalar_type());
  const Tensor bottom_part = (row - top).unsqueeze(-1).to(images.scalar_type());
  const auto line = [&](const Tensor& at_y) {
    return (1 - right_part) * pixel(left, at_y) + right_part * pixel(left + 1, at_y);
  };
  return (1 - bottom_part) * line(top) + bottom_part * line(top + 1);
}

// Along each axis it is a product with a matrix, which is slower but can be differentiated, and
// works on devices.
Tensor resized(const std::string& who, const Tensor& images, int64_t height, int64_t width,
               const std::string& interpolation, bool antialias) {
  const data::ResizeOptions how{.method = method_of(who, interpolation), .antialias = antialias};
  if (images.numel() == 0) return images.new_empty({images.size(0), height, width, images.size(3)});
  if (images.is_cpu() && !(at::GradMode::is_enabled() && images.requires_grad())) {
    return data::resize_image(images, height, width, how);
  }
  const Tensor rows = weights(images.size(1), height, how).to(images.options());
  const Tensor columns = weights(images.size(2), width, how).to(images.options());
  return at::einsum("yh,bhwc,xw->byxc", {rows, images, columns});
}

Tensor projected(const Tensor& images, const Tensor& transforms, const Sampling& how) {
  const Tensor t = transforms.to(kFloat32);
  const Tensor x = at::arange(images.size(2), t.options()).view({1, 1, -1});
  const Tensor y = at::arange(images.size(1), t.options()).view({1, -1, 1});
  const auto at = [&](int64_t i) { return t.select(1, i).view({-1, 1, 1}); };
  const Tensor scale = at(6) * x + at(7) * y + 1;
  const Shape all = {images.size(0), images.size(1), images.size(2)};
  return sample(images, ((at(0) * x + at(1) * y + at(2)) / scale).expand(all),
                ((at(3) * x + at(4) * y + at(5)) / scale).expand(all), how);
}

Tensor homography(const Tensor& from, const Tensor& to) {
  std::vector<Tensor> rows, targets;
  const Tensor one = at::ones_like(from.select(1, 0).select(1, 0)), none = at::zeros_like(one);
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor x = to.select(1, i).select(1, 0), y = to.select(1, i).select(1, 1);
    for (int64_t side = 0; side < 2; ++side) {
      const Tensor back = from.select(1, i).select(1, side);
      rows.push_back(side == 0 ? at::stack({x, y, one, none, none, none, -back * x, -back * y}, 1)
                               : at::stack({none, none, none, x, y, one, -back * x, -back * y}, 1));
      targets.push_back(back);
    }
  }
  return at::linalg_solve(at::stack(rows, 1), at::stack(targets, 1).unsqueeze(-1)).squeeze(-1);
}

}  // namespace cohort::keras::internal
