// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/image/image.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cohort/base/check.h"
#include "cohort/data/image/internal/image_codec.h"
#include "cohort/data/image/internal/load_image.h"
#include "cohort/data/image/internal/resample.h"

namespace cohort::data {
namespace {

using internal::data::PixelSink;
using internal::data::PixelView;

template <class Decode>
Tensor as_tensor(const Decode& decode) {
  Tensor out;
  decode([&out](const internal::data::ImageSize& size) {
    out = empty({size.height, size.width, size.channels}, kUint8);
    return static_cast<uint8_t*>(out.data_ptr());
  });
  return out;
}

internal::data::DecodeRequest request_of(std::string_view where,
                                         const DecodeImageOptions& options) {
  return {.where = where,
          .channels = options.channels,
          .max_pixels = options.max_pixels,
          .accept_damaged = options.accept_damaged};
}

}  // namespace

Tensor decode_png(std::string_view bytes, const DecodeImageOptions& options) {
  internal::data::check_channels("[decode_png]", options.channels, false);
  const auto request = request_of("[decode_png]", options);
  return as_tensor([&](PixelSink sink) { internal::data::decode_png(bytes, request, sink); });
}

Tensor decode_jpeg(std::string_view bytes, const DecodeJpegOptions& options) {
  internal::data::check_channels("[decode_jpeg]", options.channels, true);
  const int ratio = options.ratio;
  COHORT_CHECK_ARG(ratio == 1 || ratio == 2 || ratio == 4 || ratio == 8,
                   "[decode_jpeg] expected a ratio of 1, 2, 4 or 8, got ", ratio);
  const internal::data::DecodeRequest request{.where = "[decode_jpeg]",
                                              .channels = options.channels,
                                              .max_pixels = options.max_pixels,
                                              .accept_damaged = options.accept_damaged,
                                              .ratio = ratio,
                                              .fancy_upscaling = options.fancy_upscaling,
                                              .fast_dct = options.fast_dct};
  return as_tensor([&](PixelSink sink) { internal::data::decode_jpeg(bytes, request, sink); });
}

Tensor decode_image(std::string_view bytes, const DecodeImageOptions& options) {
  const auto request = request_of("[decode_image]", options);
  return as_tensor([&](PixelSink sink) { internal::data::decode_any(bytes, request, sink); });
}

std::string read_file(const std::string& path) {
  std::string bytes;
  internal::data::read_whole_file("[read_file]", path, bytes);
  return bytes;
}

Tensor read_image(const std::string& path, const DecodeImageOptions& options) {
  std::string bytes;
  internal::data::read_whole_file("[read_image]", path, bytes);
  const std::string where = str_cat("[read_image] ", path, ":");
  const auto request = request_of(where, options);
  return as_tensor([&](PixelSink sink) { internal::data::decode_any(bytes, request, sink); });
}

namespace {

struct ImageBatch {
  int64_t images;
  int64_t height;
  int64_t width;
  int64_t channels;
};

/// Bytes to bytes copies the nearest pixels, of whatever dtype; floats are mixed.
template <class From, class To>
void resize_each(const Tensor& from, const Tensor& out, const ImageBatch& batch, int64_t height,
                 int64_t width, const ResizeOptions& options) {
  constexpr bool kCopies = std::is_same_v<To, uint8_t>;
  const int64_t values = batch.channels * (kCopies ? static_cast<int64_t>(from.element_size()) : 1);
  const auto* source = static_cast<const From*>(from.const_data_ptr());
  auto* target = static_cast<To*>(out.data_ptr());
  for (int64_t i = 0; i < batch.images; ++i) {
    const PixelView<From> view{source, batch.height, batch.width, values, batch.width * values};
    if constexpr (kCopies) {
      internal::data::resize_nearest(view, height, width, target);
    } else {
      internal::data::resize_mixed(view, height, width, options.method, options.antialias, target);
    }
    source += batch.height * batch.width * values;
    target += height * width * values;
  }
}

/// The greatest size of the image's own shape within height and width.
void keep_shape(int64_t image_height, int64_t image_width, int64_t& height, int64_t& width) {
  const auto as_float = [](int64_t n) { return static_cast<float>(n); };
  const float scale =
      std::min(as_float(height) / as_float(image_height), as_float(width) / as_float(image_width));
  const auto scaled = [&](int64_t length) {
    return std::max<int64_t>(1, std::lrint(scale * as_float(length)));
  };
  height = scaled(image_height);
  width = scaled(image_width);
}

}  // namespace

Tensor resize_image(const Tensor& image, int64_t height, int64_t width, ResizeMethod method) {
  return resize_image(image, height, width, ResizeOptions{.method = method});
}

Tensor resize_image(const Tensor& image, int64_t height, int64_t width,
                    const ResizeOptions& options) {
  COHORT_CHECK_ARG(image.defined() && (image.dim() == 3 || image.dim() == 4),
                   "[resize_image] expected an image [h, w, c] or images [n, h, w, c], got ",
                   image.defined() ? bracketed(shape_of(image)) : "no tensor");
  internal::data::check_result_size("[resize_image]", height, width, int64_t{1} << 40);
  const auto at = static_cast<std::size_t>(image.dim() - 3);
  Shape shape = shape_of(image);
  const int64_t h = shape[at], w = shape[at + 1], c = shape[at + 2];
  COHORT_CHECK_ARG(h > 0 && w > 0, "[resize_image] expected an image with pixels, got ",
                   bracketed(shape));
  if (options.preserve_aspect_ratio) keep_shape(h, w, height, width);
  shape[at] = height;
  shape[at + 1] = width;
  const bool nearest = options.method == ResizeMethod::kNearest;
  Tensor from = image.detach().cpu();
  if (!nearest && from.scalar_type() != kUint8) from = from.to(kFloat32);
  from = from.contiguous();
  Tensor out = empty(shape, nearest ? from.scalar_type() : kFloat32);
  if (out.numel() == 0) return out;
  const ImageBatch batch{at == 0 ? 1 : shape[0], h, w, c};
  if (nearest) {
    resize_each<uint8_t, uint8_t>(from, out, batch, height, width, options);
  } else if (from.scalar_type() == kUint8) {
    resize_each<uint8_t, float>(from, out, batch, height, width, options);
  } else {
    resize_each<float, float>(from, out, batch, height, width, options);
  }
  return out;
}

Tensor decode_and_resize(std::string_view bytes, int64_t height, int64_t width,
                         const DecodeAndResizeOptions& options) {
  return internal::data::load_image("[decode_and_resize]", bytes, height, width, options);
}

namespace {

/// Checks an image for an encoder; the result is in row-major order.
Tensor pixels_of(const char* where, const Tensor& image, int64_t most_channels) {
  const bool fits = image.defined() && image.dim() == 3 && image.scalar_type() == kUint8 &&
                    image.numel() > 0 && image.size(2) <= most_channels &&
                    (most_channels == 4 || image.size(2) != 2);
  COHORT_CHECK_ARG(
      fits, where, " expected uint8 pixels [height, width, 1 to ", most_channels, "], got ",
      image.defined() ? str_cat(dtype_name(image.scalar_type()), " ", bracketed(shape_of(image)))
                      : "no tensor");
  return image.detach().cpu().contiguous();
}

internal::data::ImageSize size_of(const Tensor& pixels) {
  return {pixels.size(0), pixels.size(1), pixels.size(2)};
}

}  // namespace

std::string encode_png(const Tensor& image, int level) {
  const Tensor pixels = pixels_of("[encode_png]", image, 4);
  COHORT_CHECK_ARG(level >= 0 && level <= 9, "[encode_png] expected a level of 0 to 9, got ",
                   level);
  return internal::data::encode_png(static_cast<const uint8_t*>(pixels.const_data_ptr()),
                                    size_of(pixels), level);
}

std::string encode_jpeg(const Tensor& image, const EncodeJpegOptions& options) {
  const Tensor pixels = pixels_of("[encode_jpeg]", image, 3);
  COHORT_CHECK_ARG(options.quality >= 0 && options.quality <= 100,
                   "[encode_jpeg] expected a quality of 0 to 100, got ", options.quality);
  constexpr int64_t kMost = 65500;
  COHORT_CHECK_ARG(pixels.size(0) <= kMost && pixels.size(1) <= kMost,
                   "[encode_jpeg] expected at most ", kMost, " x ", kMost, " pixels, got ",
                   pixels.size(0), " x ", pixels.size(1));
  return internal::data::encode_jpeg(static_cast<const uint8_t*>(pixels.const_data_ptr()),
                                     size_of(pixels), options);
}

}  // namespace cohort::data
