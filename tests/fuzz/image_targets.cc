// SPDX-License-Identifier: Apache-2.0
//
// PNG and JPEG.
#include <zlib.h>

#include "cohort/data/image/image.h"
#include "cohort/data/image/test_images.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/targets.h"

namespace cohort::fuzz {
namespace {

using Strings = std::vector<std::string>;
constexpr int64_t kMostPixels = 1 << 20;

/// Every pixel has to be there: AddressSanitizer sees the reads.
int64_t sum_of(const Tensor& image) {
  const auto* pixels = static_cast<const uint8_t*>(image.const_data_ptr());
  int64_t sum = 0;
  for (int64_t i = 0; i < image.numel(); ++i) sum += pixels[i];
  return sum;
}

/// Makes the checksums of the chunks right, so that what is behind them is reached.
std::string with_checksums(std::string_view bytes) {
  constexpr std::size_t kSignature = 8;
  constexpr std::size_t kFrame = 12;  // Length, type and checksum.
  std::string out(bytes);
  for (std::size_t at = kSignature; at + kFrame <= out.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(out[at + i]);
    if (length > out.size() - at - kFrame) break;
    const auto crc = crc32(0, reinterpret_cast<const Bytef*>(out.data() + at + 4),
                           static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i) {
      out[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    }
    at += kFrame + length;
  }
  return out;
}

void fuzz_png(std::string_view bytes) {
  const uint8_t choice = take_choice(bytes);
  const std::string file = (choice & 8) != 0 ? with_checksums(bytes) : std::string(bytes);
  survives([&] { sum_of(decode_png(file, {.channels = choice % 5, .max_pixels = kMostPixels})); });
  if ((choice & 16) == 0) return;
  survives([&] {
    decode_and_resize(file, 1 + choice % 7, 9, {.channels = 0, .max_pixels = kMostPixels});
  });
}

Strings png_seeds() {
  Strings out;
  for (int64_t channels = 1; channels <= 4; ++channels) {
    const std::string file = encode_png(testing::picture(5, 7, channels));
    out.push_back(static_cast<char>(8 + channels) + file);
    out.push_back(static_cast<char>(16) + file);
  }
  // A palette, and rows in seven passes.
  std::string palette = out.front();
  palette[1 + 25] = 3;
  palette.insert(1 + 33, std::string("\0\0\0\x06PLTE\1\2\3\4\5\6\0\0\0\0", 18));
  out.push_back(palette);
  std::string interlaced = out.front();
  interlaced[1 + 28] = 1;
  out.push_back(interlaced);
  return out;
}

void fuzz_jpeg(std::string_view bytes) {
  const uint8_t choice = take_choice(bytes);
  constexpr int kChannels[] = {0, 1, 3, 4};
  const DecodeJpegOptions options = {.channels = kChannels[choice % 4],
                                     .ratio = 1 << (choice / 4 % 4),
                                     .fancy_upscaling = (choice & 16) == 0,
                                     .fast_dct = (choice & 32) != 0,
                                     .max_pixels = kMostPixels,
                                     .accept_damaged = (choice & 64) != 0};
  survives([&] { sum_of(decode_jpeg(bytes, options)); });
  if ((choice & 128) == 0) return;
  survives([&] {
    decode_and_resize(bytes, 1 + choice % 7, 9,
                      {.crop_to_aspect_ratio = true,
                       .dct_scaling = true,
                       .max_pixels = kMostPixels,
                       .accept_damaged = true});
  });
}

Strings jpeg_seeds() {
  const Tensor colours = testing::picture(20, 19, 3);
  Strings out;
  for (const std::string& file :
       {encode_jpeg(testing::picture(9, 9, 1)), encode_jpeg(colours),
        encode_jpeg(colours, {.quality = 50, .chroma_downsampling = false}),
        encode_jpeg(colours, {.quality = 30, .progressive = true}),
        testing::cmyk_jpeg(9, 9, {1, 2, 3, 4}, true),
        testing::cmyk_jpeg(9, 9, {1, 2, 3, 4}, false)}) {
    out.push_back('\0' + file);
    out.push_back(static_cast<char>(0xc6) + file);
  }
  return out;
}

}  // namespace

std::span<const Target> image_targets() {
  static const Target targets[] = {{"png", fuzz_png, png_seeds}, {"jpeg", fuzz_jpeg, jpeg_seeds}};
  return targets;
}

}  // namespace cohort::fuzz
