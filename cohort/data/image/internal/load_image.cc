// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/image/internal/load_image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/data/formats/internal/file_reader.h"
#include "cohort/data/image/internal/resample.h"

namespace cohort::internal::data {

void check_pixels(const DecodeRequest& request, int64_t height, int64_t width) {
  COHORT_CHECK_ARG(height <= request.max_pixels / std::max<int64_t>(width, 1), request.where,
                   " expected at most ", request.max_pixels, " pixels (max_pixels), got ", height,
                   " x ", width);
}

using cohort::data::DecodeAndResizeOptions;
using cohort::data::ResizeMethod;

void check_channels(std::string_view where, int channels, bool jpeg) {
  COHORT_CHECK_ARG(channels >= 0 && channels <= 4 && !(jpeg && channels == 2), where,
                   " expected channels of 0, 1, ", jpeg ? "" : "2, ", "3 or 4, got ", channels);
}

void check_result_size(std::string_view where, int64_t height, int64_t width, int64_t most) {
  COHORT_CHECK_ARG(height >= 1 && width >= 1 && height <= most / width, where,
                   " expected a height and a width of at least 1, and at most ", most,
                   " pixels, got ", height, " x ", width);
}

void decode_any(std::string_view bytes, const DecodeRequest& request, PixelSink sink) {
  if (bytes.starts_with("\xff\xd8\xff")) {
    check_channels(request.where, request.channels, true);
    return decode_jpeg(bytes, request, sink);
  }
  check_channels(request.where, request.channels, false);
  if (bytes.starts_with("\x89PNG")) return decode_png(bytes, request, sink);
  const char* other = bytes.starts_with("GIF8")   ? "GIF"
                      : bytes.starts_with("BM")   ? "BMP"
                      : bytes.starts_with("RIFF") ? "WebP"
                                                  : nullptr;
  if (other != nullptr) {
    throw Unimplemented(
        str_cat(request.where, " ", other, " images are not read: convert them to PNG or JPEG"));
  }
  throw DataLoss(str_cat(request.where, " expected a PNG or JPEG image, got ",
                         bytes.empty() ? "no bytes" : "other bytes"));
}

namespace {

/// Serves one image after the other; what a very large one took is given back.
class PixelMemory {
 public:
  uint8_t* get(int64_t bytes) {
    if (bytes > capacity_) {
      pixels_.reset();
      pixels_.reset(new uint8_t[static_cast<std::size_t>(bytes)]);
      capacity_ = bytes;
    }
    return pixels_.get();
  }
  void trim() {
    constexpr int64_t kKept = int64_t{32} << 20;
    if (capacity_ <= kKept) return;
    pixels_.reset();
    capacity_ = 0;
  }

 private:
  std::unique_ptr<uint8_t[]> pixels_;
  int64_t capacity_ = 0;
};

/// The middle part of an image that has the shape of the result. TF: keras smart_resize.
PixelView<uint8_t> middle(PixelView<uint8_t> image, int64_t height, int64_t width) {
  const auto part = [](int64_t a, int64_t b, int64_t c) {
    return static_cast<int64_t>(static_cast<float>(a * b) / static_cast<float>(c));
  };
  const int64_t crop_height =
      std::clamp<int64_t>(part(image.width, height, width), 1, image.height);
  const int64_t crop_width = std::clamp<int64_t>(part(image.height, width, height), 1, image.width);
  const int64_t top = (image.height - crop_height) / 2;
  const int64_t left = (image.width - crop_width) / 2;
  image.data += top * image.row_stride + left * image.channels;
  image.height = crop_height;
  image.width = crop_width;
  return image;
}

Tensor resized(const PixelView<uint8_t>& image, int64_t height, int64_t width,
               const DecodeAndResizeOptions& options) {
  const bool nearest = options.method == ResizeMethod::kNearest;
  Tensor out = empty({height, width, image.channels}, nearest ? kUint8 : kFloat32);
  if (nearest) {
    resize_nearest(image, height, width, static_cast<uint8_t*>(out.data_ptr()));
  } else {
    resize_mixed(image, height, width, options.method, options.antialias,
                 static_cast<float*>(out.data_ptr()));
  }
  return out;
}

}  // namespace

FittedSize fit_within(int64_t image_height, int64_t image_width, int64_t height, int64_t width) {
  // In floats, and the place from lengths that are not rounded yet, as TensorFlow does.
  const auto as_float = [](int64_t n) { return static_cast<float>(n); };
  const float ratio =
      std::max(as_float(image_width) / as_float(width), as_float(image_height) / as_float(height));
  const float fitted_height = as_float(image_height) / ratio;
  const float fitted_width = as_float(image_width) / ratio;
  FittedSize out;
  out.height = std::clamp<int64_t>(static_cast<int64_t>(fitted_height), 1, height);
  out.width = std::clamp<int64_t>(static_cast<int64_t>(fitted_width), 1, width);
  const auto before = [&](int64_t length, float fitted, int64_t rounded) {
    const auto at = static_cast<int64_t>(std::floor((as_float(length) - fitted) / 2));
    return std::clamp<int64_t>(at, 0, length - rounded);
  };
  out.place = {.offset_height = before(height, fitted_height, out.height),
               .offset_width = before(width, fitted_width, out.width),
               .target_height = height,
               .target_width = width};
  return out;
}

Tensor load_image(std::string_view where, std::string_view bytes, int64_t height, int64_t width,
                  const DecodeAndResizeOptions& options) {
  check_result_size(where, height, width, options.max_pixels);
  COHORT_CHECK_ARG(!options.crop_to_aspect_ratio || !options.pad_to_aspect_ratio, where,
                   " expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got both");
  DecodeRequest request{.where = where,
                        .channels = options.channels,
                        .max_pixels = options.max_pixels,
                        .accept_damaged = options.accept_damaged};
  if (options.dct_scaling) {
    request.least_height = height;
    request.least_width = width;
  }
  static thread_local PixelMemory memory;
  PixelView<uint8_t> image;
  decode_any(bytes, request, [&image](const ImageSize& size) {
    uint8_t* pixels = memory.get(size.bytes());
    image = {pixels, size.height, size.width, size.channels, size.width * size.channels};
    return pixels;
  });
  if (options.crop_to_aspect_ratio) image = middle(image, height, width);
  Tensor out;
  if (options.pad_to_aspect_ratio) {
    const FittedSize fitted = fit_within(image.height, image.width, height, width);
    out = cohort::data::pad_to_bounding_box(resized(image, fitted.height, fitted.width, options),
                                            fitted.place);
  } else {
    out = resized(image, height, width, options);
  }
  memory.trim();
  return out;
}

void read_whole_file(std::string_view where, const std::string& path, std::string& bytes) {
  struct File {
    int number;
    ~File() {
      if (number >= 0) ::close(number);
    }
  };
  const auto fail = [&](const char* verb) {
    const int error = errno;
    throw Error(base::code_of_errno(error),
                str_cat(where, " cannot ", verb, " ", path, ": ", std::strerror(error)));
  };
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) fail("open");
  struct stat about {};
  if (::fstat(file.number, &about) != 0) fail("read");
  // One byte more than the size says: its absence is the end of the file.
  constexpr std::size_t kLeast = 4096;
  bytes.resize(std::max(static_cast<std::size_t>(about.st_size) + 1, kLeast));
  std::size_t done = 0;
  while (true) {
    const ssize_t got = ::read(file.number, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    if (done == bytes.size()) bytes.resize(2 * done);
  }
  bytes.resize(done);
}

Tensor load_image_file(const std::string& path, int64_t height, int64_t width,
                       const DecodeAndResizeOptions& options) {
  static thread_local std::string bytes;  // Serves one file after the other.
  read_whole_file("[read_image]", path, bytes);
  return load_image(str_cat("[read_image] ", path, ":"), bytes, height, width, options);
}

}  // namespace cohort::internal::data
