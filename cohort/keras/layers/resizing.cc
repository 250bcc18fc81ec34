// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/resizing.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/image_sampling.h"

namespace cohort::keras {
namespace {

void check_size(const char* who, int64_t height, int64_t width) {
  COHORT_CHECK_ARG(height > 0 && width > 0, "[", who, "] expected a height and a width > 0, got ",
                   height, " and ", width);
}

Shape in_size(const Shape& input, int64_t height, int64_t width, bool channels_first) {
  COHORT_CHECK_ARG(input.size() == 3 || input.size() == 4,
                   "[image] expected shapes of 3 or 4 axes, got ", bracketed(input));
  Shape out = input;
  const std::size_t rows = out.size() - (channels_first ? 2 : 3);
  out[rows] = height;
  out[rows + 1] = width;
  return out;
}

// Keras computes where things lie in float32.
int64_t part(int64_t a, int64_t b, int64_t by) {
  return static_cast<int64_t>(static_cast<float>(a * b) / static_cast<float>(by));
}

struct Size {
  int64_t height, width;
};

Tensor cut(const Tensor& images, int64_t row, int64_t column, const Size& size) {
  return images.narrow(1, row, size.height).narrow(2, column, size.width);
}

// The greatest part of images with the shape of `to`, in their middle.
Tensor cut_to_ratio(const Tensor& images, const Size& to) {
  const int64_t h = images.size(1), w = images.size(2);
  const Size size{std::clamp<int64_t>(part(w, to.height, to.width), 1, h),
                  std::clamp<int64_t>(part(h, to.width, to.height), 1, w)};
  return cut(images, (h - size.height) / 2, (w - size.width) / 2, size);
}

// As much on either side, so it may be one row less than the ratio asks for, as in Keras.
Tensor padded_to_ratio(const Tensor& images, const Size& to, double value) {
  const int64_t h = images.size(1), w = images.size(2);
  const int64_t rows = (std::max(h, part(w, to.height, to.width)) - h) / 2;
  const int64_t columns = (std::max(w, part(h, to.width, to.height)) - w) / 2;
  return at::constant_pad_nd(images, {0, 0, columns, columns, rows, rows}, value);
}

// Of a type of whole numbers, the nearest that it has.
Tensor whole(const Tensor& x, DType dtype) {
  double least = 0, most = 0;
  if (dtype == at::kByte) {
    most = std::numeric_limits<uint8_t>::max();
  } else if (dtype == at::kChar) {
    least = std::numeric_limits<int8_t>::min();
    most = std::numeric_limits<int8_t>::max();
  } else if (dtype == at::kShort) {
    least = std::numeric_limits<int16_t>::min();
    most = std::numeric_limits<int16_t>::max();
  } else {
    return x.round().to(dtype);
  }
  return x.round().clamp(least, most).to(dtype);
}

}  // namespace

ResizingLayer::ResizingLayer(ResizingConfig config) : LayerImpl(std::move(config)) {
  const ResizingConfig& o = this->config();
  check_size("resizing", o.height, o.width);
  COHORT_CHECK_ARG(!(o.crop_to_aspect_ratio && o.pad_to_aspect_ratio),
                   "[resizing] expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got "
                   "both");
  internal::resized("resizing", zeros({0, 1, 1, 1}), 1, 1, o.interpolation, false);  // the name
  set_up(o.data_format);
}

Tensor ResizingLayer::call(const Tensor& images, const CallArgs&) {
  COHORT_CHECK_ARG(images.dim() == 3 || images.dim() == 4, "[", name(),
                   "] expected an image of 3 axes or a batch of them, got shape ",
                   bracketed(images.sizes()));
  const bool floats = images.is_floating_point();
  const DType dtype = floats ? dtype_policy().compute_dtype() : images.scalar_type();
  Tensor batch = images.dim() == 3 ? images.unsqueeze(0) : images;
  if (channels_first()) batch = batch.movedim(1, -1);
  const bool copies = config().interpolation == "nearest";
  if (floats || !copies) batch = batch.to(kFloat32);
  Tensor y = transform(batch);
  if (channels_first()) y = y.movedim(-1, 1);
  if (images.dim() == 3) y = y.squeeze(0);
  return floats || copies ? y.to(dtype) : whole(y, dtype);
}

Tensor ResizingLayer::transform(const Tensor& images) {
  const ResizingConfig& o = config();
  const Size to{o.height, o.width};
  Tensor x = images;
  if (o.crop_to_aspect_ratio) x = cut_to_ratio(x, to);
  if (o.pad_to_aspect_ratio) x = padded_to_ratio(x, to, o.fill_value);
  return internal::resized(name(), x, o.height, o.width, o.interpolation, o.antialias);
}

Shape ResizingLayer::compute_output_shape(const Shape& input_shape) const {
  return in_size(input_shape, config().height, config().width, channels_first());
}

CenterCropLayer::CenterCropLayer(CenterCropConfig config) : LayerImpl(std::move(config)) {
  check_size("center_crop", this->config().height, this->config().width);
  set_up(this->config().data_format);
}

Tensor CenterCropLayer::transform(const Tensor& images) {
  const Size to{config().height, config().width};
  const int64_t rows = images.size(1) - to.height, columns = images.size(2) - to.width;
  if (rows >= 0 && columns >= 0) return cut(images, rows / 2, columns / 2, to);
  return internal::resized(name(), cut_to_ratio(images, to), to.height, to.width, "bilinear",
                           false);
}

Shape CenterCropLayer::compute_output_shape(const Shape& input_shape) const {
  return in_size(input_shape, config().height, config().width, channels_first());
}

RandomCropLayer::RandomCropLayer(RandomCropConfig config) : LayerImpl(std::move(config)) {
  check_size("random_crop", this->config().height, this->config().width);
  set_up(this->config().data_format, this->config().seed);
}

Tensor RandomCropLayer::transform(const Tensor& images) {
  const int64_t height = config().height, width = config().width;
  const int64_t h = images.size(1), w = images.size(2);
  if (h > height && w > width) {
    const cohort::internal::runtime::RandomStream stream = draws().next();
    const auto place = [&](uint64_t index, int64_t room) {
      return static_cast<int64_t>(
          cohort::internal::runtime::uniform_below(stream, index, static_cast<uint64_t>(room + 1)));
    };
    return cut(images, place(0, h - height), place(1, w - width), {height, width});
  }
  // Keras finds the place of the part with the same ratio, but cuts out another size.
  const int64_t row = (h - std::clamp<int64_t>(w * height / width, 1, h)) / 2;
  const int64_t column = (w - std::clamp<int64_t>(h * width / height, 1, w)) / 2;
  const Tensor x =
      cut(images, row, column, {std::min(height, h - row), std::min(width, w - column)});
  if (x.size(1) == height && x.size(2) == width) return x;
  return internal::resized(name(), x, height, width, "bilinear", false);
}

Shape RandomCropLayer::compute_output_shape(const Shape& input_shape) const {
  return in_size(input_shape, config().height, config().width, channels_first());
}

Resizing::Resizing(int64_t height, int64_t width, ResizingOptions options)
    : Layer(std::make_shared<ResizingLayer>(ResizingConfig{std::move(options), height, width})) {}

CenterCrop::CenterCrop(int64_t height, int64_t width, CenterCropOptions options)
    : Layer(
          std::make_shared<CenterCropLayer>(CenterCropConfig{std::move(options), height, width})) {}

RandomCrop::RandomCrop(int64_t height, int64_t width, RandomCropOptions options)
    : Layer(
          std::make_shared<RandomCropLayer>(RandomCropConfig{std::move(options), height, width})) {}

}  // namespace cohort::keras
