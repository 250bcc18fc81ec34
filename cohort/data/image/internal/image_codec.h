// SPDX-License-Identifier: Apache-2.0
//
// What libpng and libjpeg-turbo are asked for, and what they write their pixels into.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/function_ref.h"
#include "cohort/data/image/image.h"

namespace cohort::internal::data {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t bytes() const { return height * width * channels; }
};

/// Gives the memory for size.bytes() pixels, row after row, once the size is known.
using PixelSink = base::FunctionRef<uint8_t*(const ImageSize& size)>;

struct DecodeRequest {
  std::string_view where;  ///< Begins the texts of errors: "[read_image] cat.jpg:".
  int channels = 0;
  int64_t max_pixels = 0;
  bool accept_damaged = false;
  // Of JPEG images alone.
  int ratio = 1;
  int64_t least_height = 0;  ///< Not 0: the greatest ratio that keeps this size.
  int64_t least_width = 0;
  bool fancy_upscaling = true;
  bool fast_dct = false;
};

/// Nothing is written to the sink's memory that is not of the image; after an error it holds a
/// part. Errors: as the public functions, with request.where before the text.
void decode_png(std::string_view bytes, const DecodeRequest& request, PixelSink sink);
void decode_jpeg(std::string_view bytes, const DecodeRequest& request, PixelSink sink);

/// Errors: InvalidArgument for a size above the request's limit.
void check_pixels(const DecodeRequest& request, int64_t height, int64_t width);

std::string encode_png(const uint8_t* pixels, const ImageSize& size, int level);
std::string encode_jpeg(const uint8_t* pixels, const ImageSize& size,
                        const cohort::data::EncodeJpegOptions& options);

}  // namespace cohort::internal::data
