// SPDX-License-Identifier: Apache-2.0
//
// Images as tensors: PNG and JPEG out of bytes and files, other sizes, and back into bytes.
//
//   Tensor image = resize_image(read_image("cat.jpg", {.channels = 3}), 224, 224);
//   Dataset::list_files("cats/*.jpg").map([](const std::string& file) {
//     return decode_and_resize(read_file(file), 224, 224);
//   }, {.parallel_calls = kAutotune});
//
// A folder with a sub-folder for each class is a dataset by `cohort/data/image/image_folder.h`.
// Threads: all functions are thread-safe; each thread that decodes keeps a decoder for the next
// image.
#pragma once

#include <string>
#include <string_view>

#include "cohort/runtime/tensor.h"

namespace cohort::data {

struct DecodeImageOptions {
  /// 0: as stored (a palette is RGB or RGBA, CMYK is RGB). 1: gray, 2: gray and alpha, 3: RGB, 4:
  /// RGBA; what has no alpha gets 255, and alpha that is not wanted is left out.
  int channels = 0;
  /// Larger images are refused before memory is taken for them.
  int64_t max_pixels = 1 << 27;
  /// JPEG: what is missing of a damaged image stays gray instead of being an error.
  bool accept_damaged = false;
};

struct DecodeJpegOptions {
  int channels = 0;  ///< 0, 1, 3 or 4, as DecodeImageOptions::channels.
  /// Decodes at 1/ratio of the size, rounded up, which is faster: 1, 2, 4 or 8.
  int ratio = 1;
  bool fancy_upscaling = true;  ///< False: faster, colours with visible blocks.
  bool fast_dct = false;        ///< True: TensorFlow's default, less exact by a few levels.
  int64_t max_pixels = 1 << 27;
  bool accept_damaged = false;
};

/// uint8 pixels of a PNG image of any kind; of 16 bits the upper 8. Colours are as stored: gamma
/// and colour profiles are not applied, but for gAMA and sRGB chunks where colour becomes gray
/// (channels 1 and 2), as libpng and TensorFlow do.
/// Shapes: [height, width, channels]. Errors: DataLoss if the bytes are no PNG image, damaged or
/// cut off; InvalidArgument above max_pixels or for other channels. TF: tf.io.decode_png.
Tensor decode_png(std::string_view bytes, const DecodeImageOptions& options = {});
/// uint8 pixels of a JPEG image: gray, YCbCr, RGB, CMYK or YCCK, baseline or progressive; a
/// rotation in its Exif data is not applied. Shapes, Errors: as decode_png; Unimplemented for 12
/// bits and lossless ones. TF: tf.io.decode_jpeg, which is silent about damage and cannot give
/// alpha.
Tensor decode_jpeg(std::string_view bytes, const DecodeJpegOptions& options = {});
/// Either, by the first bytes. Errors: Unimplemented for GIF, BMP and WebP. TF: tf.io.decode_image.
Tensor decode_image(std::string_view bytes, const DecodeImageOptions& options = {});

/// All bytes of a file. Errors: Error kNotFound, or what the system says. TF: tf.io.read_file.
std::string read_file(const std::string& path);
/// decode_image of a file. Errors: as decode_image and read_file, with the file's name.
Tensor read_image(const std::string& path, const DecodeImageOptions& options = {});

/// All but kNearest give float32; kBicubic, kLanczos3, kLanczos5 and kMitchellCubic may go beyond
/// the image's least and greatest value.
enum class ResizeMethod {
  kBilinear,
  kNearest,        ///< The image's own dtype.
  kBicubic,        ///< Keys's cubic, of four pixels along each axis.
  kArea,           ///< The mean of what a pixel of the result covers.
  kLanczos3,       ///< Of six pixels along each axis.
  kLanczos5,       ///< Of ten.
  kGaussian,       ///< Smooth, of three pixels.
  kMitchellCubic,  ///< A cubic between sharp and smooth, of four pixels.
};

struct ResizeOptions {
  ResizeMethod method = ResizeMethod::kBilinear;
  /// When making an image smaller, filters over all source pixels that a pixel covers, which avoids
  /// aliasing. kNearest and kArea are the same with and without.
  bool antialias = false;
  /// Keeps the aspect ratio: the largest such size within the one asked for.
  bool preserve_aspect_ratio = false;
};

/// The image in another size; pixels are squares with their values in the middle.
/// Shapes: [h, w, c] -> [height, width, c], or [n, h, w, c] -> [n, height, width, c].
/// Errors: InvalidArgument for other shapes, for empty images and sizes below 1.
/// TF: tf.image.resize, which keeps the dtype of an image that has the size already.
Tensor resize_image(const Tensor& image, int64_t height, int64_t width,
                    const ResizeOptions& options = {});
Tensor resize_image(const Tensor& image, int64_t height, int64_t width, ResizeMethod method);

/// The position and size of a smaller image in a larger one, in pixels.
struct BoundingBox {
  int64_t offset_height = 0;  ///< From the top.
  int64_t offset_width = 0;   ///< From the left.
  int64_t target_height = 0;  ///< Of the result.
  int64_t target_width = 0;
};

/// The part of images [h, w, c] or [n, h, w, c] in the box. Owns: a view.
/// Errors: InvalidArgument for other shapes, and for a box that is not within.
Tensor crop_to_bounding_box(const Tensor& image, const BoundingBox& box);
/// The images with zeros around, of the target's size. Errors: InvalidArgument if they do not fit.
Tensor pad_to_bounding_box(const Tensor& image, const BoundingBox& box);
/// The middle part of the images, of such a fraction of each side. Owns: a view.
/// Errors: InvalidArgument for a fraction of 0 or above 1.
Tensor central_crop(const Tensor& image, double central_fraction);
/// The middle of the images, or zeros around them, along each side: pixels stay as they are.
Tensor resize_with_crop_or_pad(const Tensor& image, int64_t height, int64_t width);
/// The whole images in the greatest size that fits, with zeros around.
/// Errors: as resize_image.
Tensor resize_with_pad(const Tensor& image, int64_t height, int64_t width,
                       const ResizeOptions& options = {});

struct DecodeAndResizeOptions {
  int channels = 3;  ///< As DecodeImageOptions::channels.
  ResizeMethod method = ResizeMethod::kBilinear;
  /// Keeps the middle of the image that has the shape of the result, instead of distorting.
  bool crop_to_aspect_ratio = false;
  /// Lets JPEG images be decoded at the smallest 1, 1/2, 1/4 or 1/8 of their size that is not below
  /// the result's: faster and smoother, but other numbers than resize_image(decode_image(bytes)).
  bool dct_scaling = false;
  int64_t max_pixels = 1 << 27;
  bool accept_damaged = false;
  bool antialias = false;  ///< As ResizeOptions::antialias.
  /// Leaves black borders around the image, as resize_with_pad, instead of distorting. Not with
  /// crop_to_aspect_ratio.
  bool pad_to_aspect_ratio = false;
};

/// resize_image(decode_image(bytes)) with the same numbers, without a tensor in between.
Tensor decode_and_resize(std::string_view bytes, int64_t height, int64_t width,
                         const DecodeAndResizeOptions& options = {});

struct EncodeJpegOptions {
  int quality = 95;                 ///< 0 to 100.
  bool chroma_downsampling = true;  ///< Colours at half the size.
  bool progressive = false;
};

/// A PNG image of uint8 [height, width, 1 to 4]. `level`: of zlib, 0 to 9.
/// Errors: InvalidArgument for other tensors. TF: tf.io.encode_png.
std::string encode_png(const Tensor& image, int level = 6);
/// A JPEG image of uint8 [height, width, 1 or 3], at most 65,500 wide and high.
/// Errors: InvalidArgument for other tensors. TF: tf.io.encode_jpeg.
std::string encode_jpeg(const Tensor& image, const EncodeJpegOptions& options = {});

}  // namespace cohort::data

namespace cohort {
using namespace data;
}
