// SPDX-License-Identifier: Apache-2.0
//
// PNG and JPEG images out of pixels. As in the readers, nothing with a destructor is made between
// `setjmp` and the libraries' functions.
#include <stdio.h>  // jpeglib.h needs it before.

#include <jpeglib.h>
#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdlib>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/data/image/internal/image_codec.h"
#include "cohort/data/image/internal/png_errors.h"

namespace cohort::internal::data {
namespace {

class PngWriter {
 public:
  PngWriter()
      : png_(png_create_write_struct(PNG_LIBPNG_VER_STRING, &errors_, PngErrors::give_up,
                                     PngErrors::ignore)) {
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  std::string encode(const uint8_t* pixels, const ImageSize& size, int level) {
    if (info_ == nullptr || !write(pixels, size, level)) {
      throw Error(ErrorCode::kResourceExhausted, str_cat("[encode_png] ", errors_.text.data()));
    }
    return std::move(out_);
  }

 private:
  static PngWriter& of(void* pointer) { return *static_cast<PngWriter*>(pointer); }
  static void append(png_structp png, png_bytep bytes, std::size_t count) {
    PngWriter& writer = of(png_get_io_ptr(png));
    try {
      writer.out_.append(reinterpret_cast<const char*>(bytes), count);
      return;
    } catch (...) {  // Not through C; the handler has to be left before the jump.
    }
    png_error(png, "no memory");
  }
  static void flush(png_structp) {}

  bool write(const uint8_t* pixels, const ImageSize& size, int level) {
    constexpr std::array<int, 4> kTypes = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                           PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    if (setjmp(errors_.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's way.
    png_set_write_fn(png_, this, append, flush);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_compression_level(png_, level);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(size.width),
                 static_cast<png_uint_32>(size.height), 8,
                 kTypes[static_cast<std::size_t>(size.channels) - 1], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    for (int64_t y = 0; y < size.height; ++y) {
      png_write_row(png_, pixels + y * size.width * size.channels);
    }
    png_write_end(png_, nullptr);
    return true;
  }

  PngErrors errors_;
  png_structp png_;
  png_infop info_ = nullptr;
  std::string out_;
};

class JpegWriter {
 public:
  JpegWriter() {
    info_.err = jpeg_std_error(&messages_.base);
    messages_.base.error_exit = give_up;
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);  // NOLINT: libjpeg's malloc.
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  std::string encode(const uint8_t* pixels, const ImageSize& size,
                     const cohort::data::EncodeJpegOptions& options) {
    if (!write(pixels, size, options)) {
      throw Internal(str_cat("[encode_jpeg] libjpeg failed: ", messages_.text.data()));
    }
    return {reinterpret_cast<const char*>(bytes_), count_};
  }

 private:
  /// libjpeg knows this struct by its first member.
  struct Messages {
    jpeg_error_mgr base{};
    std::jmp_buf jump{};
    std::array<char, JMSG_LENGTH_MAX> text{};
  };
  [[noreturn]] static void give_up(j_common_ptr info) {
    auto& messages = *reinterpret_cast<Messages*>(info->err);
    messages.base.format_message(info, messages.text.data());
    std::longjmp(messages.jump, 1);  // NOLINT(cert-err52-cpp): through C.
  }

  bool write(const uint8_t* pixels, const ImageSize& size,
             const cohort::data::EncodeJpegOptions& options) {
    if (setjmp(messages_.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's way.
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &count_);
    info_.image_width = static_cast<JDIMENSION>(size.width);
    info_.image_height = static_cast<JDIMENSION>(size.height);
    info_.input_components = static_cast<int>(size.channels);
    info_.in_color_space = size.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, options.quality, TRUE);
    if (size.channels == 3 && !options.chroma_downsampling) {
      info_.comp_info[0].h_samp_factor = 1;
      info_.comp_info[0].v_samp_factor = 1;
    }
    if (options.progressive) jpeg_simple_progression(&info_);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      JSAMPROW row =
          const_cast<JSAMPROW>(pixels + info_.next_scanline * size.width * size.channels);
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  jpeg_compress_struct info_{};
  Messages messages_;
  unsigned char* bytes_ = nullptr;
  unsigned long count_ = 0;  // NOLINT(google-runtime-int): libjpeg's type.
};

}  // namespace

std::string encode_png(const uint8_t* pixels, const ImageSize& size, int level) {
  return PngWriter().encode(pixels, size, level);
}

std::string encode_jpeg(const uint8_t* pixels, const ImageSize& size,
                        const cohort::data::EncodeJpegOptions& options) {
  return JpegWriter().encode(pixels, size, options);
}

}  // namespace cohort::internal::data
