// SPDX-License-Identifier: Apache-2.0
//
// Images cut out of others, and borders around them.
#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/data/image/image.h"
#include "cohort/data/image/internal/load_image.h"

namespace cohort::data {
namespace {

struct ImageShape {
  int64_t axis;  ///< Of the height.
  int64_t height;
  int64_t width;
};

ImageShape checked_shape(const char* where, const Tensor& image) {
  COHORT_CHECK_ARG(image.defined() && (image.dim() == 3 || image.dim() == 4), where,
                   " expected an image [h, w, c] or images [n, h, w, c], got ",
                   image.defined() ? bracketed(shape_of(image)) : "no tensor");
  const int64_t axis = image.dim() - 3;
  return {axis, image.size(axis), image.size(axis + 1)};
}

void check_target(const char* where, int64_t height, int64_t width) {
  COHORT_CHECK_ARG(height >= 1 && width >= 1, where,
                   " expected a height and a width of at least 1, got ", height, " x ", width);
}

/// The place of a smaller length in the middle of a greater one.
int64_t middle(int64_t greater, int64_t smaller) { return (greater - smaller) / 2; }

}  // namespace

Tensor crop_to_bounding_box(const Tensor& image, const BoundingBox& box) {
  constexpr const char* kTag = "[crop_to_bounding_box]";
  const ImageShape shape = checked_shape(kTag, image);
  check_target(kTag, box.target_height, box.target_width);
  COHORT_CHECK_ARG(box.offset_height >= 0 && box.offset_width >= 0 &&
                       box.target_height <= shape.height - box.offset_height &&
                       box.target_width <= shape.width - box.offset_width,
                   kTag, " expected a box within ", shape.height, " x ", shape.width, ", got ",
                   box.target_height, " x ", box.target_width, " at ", box.offset_height, ", ",
                   box.offset_width);
  return image.narrow(shape.axis, box.offset_height, box.target_height)
      .narrow(shape.axis + 1, box.offset_width, box.target_width);
}

Tensor pad_to_bounding_box(const Tensor& image, const BoundingBox& box) {
  constexpr const char* kTag = "[pad_to_bounding_box]";
  const ImageShape from = checked_shape(kTag, image);
  check_target(kTag, box.target_height, box.target_width);
  COHORT_CHECK_ARG(box.offset_height >= 0 && box.offset_width >= 0 &&
                       from.height <= box.target_height - box.offset_height &&
                       from.width <= box.target_width - box.offset_width,
                   kTag, " expected room for ", from.height, " x ", from.width, " pixels at ",
                   box.offset_height, ", ", box.offset_width, ", got ", box.target_height, " x ",
                   box.target_width);
  Shape shape = shape_of(image);
  shape[static_cast<std::size_t>(from.axis)] = box.target_height;
  shape[static_cast<std::size_t>(from.axis) + 1] = box.target_width;
  Tensor out = zeros(shape, image.scalar_type());
  out.narrow(from.axis, box.offset_height, from.height)
      .narrow(from.axis + 1, box.offset_width, from.width)
      .copy_(image.detach());
  return out;
}

Tensor central_crop(const Tensor& image, double central_fraction) {
  constexpr const char* kTag = "[central_crop]";
  const ImageShape shape = checked_shape(kTag, image);
  COHORT_CHECK_ARG(central_fraction > 0 && central_fraction <= 1, kTag,
                   " expected a fraction above 0 and of at most 1, got ", central_fraction);
  const auto left_out = [&](int64_t length) {
    const auto all = static_cast<double>(length);
    return static_cast<int64_t>((all - all * central_fraction) / 2);
  };
  const int64_t top = left_out(shape.height), left = left_out(shape.width);
  return image.narrow(shape.axis, top, shape.height - 2 * top)
      .narrow(shape.axis + 1, left, shape.width - 2 * left);
}

Tensor resize_with_crop_or_pad(const Tensor& image, int64_t height, int64_t width) {
  constexpr const char* kTag = "[resize_with_crop_or_pad]";
  const ImageShape shape = checked_shape(kTag, image);
  check_target(kTag, height, width);
  const int64_t kept_height = std::min(height, shape.height);
  const int64_t kept_width = std::min(width, shape.width);
  const Tensor middle_part =
      crop_to_bounding_box(image, {.offset_height = middle(shape.height, kept_height),
                                   .offset_width = middle(shape.width, kept_width),
                                   .target_height = kept_height,
                                   .target_width = kept_width});
  return pad_to_bounding_box(middle_part, {.offset_height = middle(height, kept_height),
                                           .offset_width = middle(width, kept_width),
                                           .target_height = height,
                                           .target_width = width});
}

Tensor resize_with_pad(const Tensor& image, int64_t height, int64_t width,
                       const ResizeOptions& options) {
  constexpr const char* kTag = "[resize_with_pad]";
  const ImageShape shape = checked_shape(kTag, image);
  check_target(kTag, height, width);
  COHORT_CHECK_ARG(shape.height > 0 && shape.width > 0, kTag,
                   " expected an image with pixels, got ", bracketed(shape_of(image)));
  const internal::data::FittedSize fitted =
      internal::data::fit_within(shape.height, shape.width, height, width);
  return pad_to_bounding_box(resize_image(image, fitted.height, fitted.width, options),
                             fitted.place);
}

}  // namespace cohort::data
