// SPDX-License-Identifier: Apache-2.0
//
// Decoding and resizing in one go, as decode_and_resize and image folders do.
#pragma once

#include <string>
#include <string_view>

#include "cohort/data/image/image.h"
#include "cohort/data/image/internal/image_codec.h"

namespace cohort::internal::data {

/// Errors: InvalidArgument; JPEG has no gray with alpha.
void check_channels(std::string_view where, int channels, bool jpeg);
/// Errors: InvalidArgument for a result without pixels, or with more than `most`.
void check_result_size(std::string_view where, int64_t height, int64_t width, int64_t most);
/// PNG or JPEG by the first bytes. Errors: as data::decode_image.
void decode_any(std::string_view bytes, const DecodeRequest& request, PixelSink sink);

/// The greatest size of an image's shape within another, and its place in the middle.
struct FittedSize {
  int64_t height = 0;
  int64_t width = 0;
  cohort::data::BoundingBox place = {};
};
FittedSize fit_within(int64_t image_height, int64_t image_width, int64_t height, int64_t width);

/// `where` begins the texts of errors.
Tensor load_image(std::string_view where, std::string_view bytes, int64_t height, int64_t width,
                  const cohort::data::DecodeAndResizeOptions& options);

/// Errors name the file.
Tensor load_image_file(const std::string& path, int64_t height, int64_t width,
                       const cohort::data::DecodeAndResizeOptions& options);

/// Replaces `bytes`, whose memory is used again.
void read_whole_file(std::string_view where, const std::string& path, std::string& bytes);

}  // namespace cohort::internal::data
