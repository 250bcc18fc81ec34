// SPDX-License-Identifier: Apache-2.0
//
// Images for tests.
#pragma once

#include <stdio.h>  // jpeglib.h needs it before.

#include <jpeglib.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "cohort/runtime/tensor.h"

namespace cohort::testing {

/// Gradients down, across and in both directions, one a channel.
inline Tensor picture(int64_t height, int64_t width, int64_t channels) {
  std::vector<uint8_t> values;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const std::array<int64_t, 3> kinds = {y * 12, x * 10, y * x};
      for (int64_t c = 0; c < channels; ++c) {
        values.push_back(static_cast<uint8_t>(kinds[static_cast<std::size_t>(c % 3)] + c / 3));
      }
    }
  }
  return from_vector(values, {height, width, channels});
}

/// An image of one colour of four inks, as stored; `adobe` marks the file as from that maker.
inline std::string cmyk_jpeg(unsigned height, unsigned width, std::array<uint8_t, 4> inks,
                             bool adobe) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;  // NOLINT(google-runtime-int): libjpeg's type.
  jpeg_mem_dest(&info, &bytes, &count);
  info.image_width = width;
  info.image_height = height;
  info.input_components = 4;
  info.in_color_space = JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  info.write_Adobe_marker = adobe ? TRUE : FALSE;
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row;
  for (unsigned x = 0; x < width; ++x) row.insert(row.end(), inks.begin(), inks.end());
  JSAMPROW rows = row.data();
  while (info.next_scanline < height) jpeg_write_scanlines(&info, &rows, 1);
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<const char*>(bytes), count);
  std::free(bytes);  // NOLINT: libjpeg's malloc.
  return out;
}

}  // namespace cohort::testing
