// SPDX-License-Identifier: Apache-2.0
//
// PNG images by libpng. Its functions end in an error by longjmp, so what runs between `protect`
// and them holds nothing with a destructor.
#include <png.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/data/image/internal/image_codec.h"
#include "cohort/data/image/internal/png_errors.h"

namespace cohort::internal::data {
namespace {

/// A byte of deflate cannot stand for more bytes than this.
constexpr int64_t kMostCompression = 1032;
constexpr int kSignatureBytes = 8;
constexpr png_uint_32 kOpaqueSample = 255;

/// One image. Threads: one caller at a time.
class PngReader {
 public:
  PngReader(std::string_view bytes, const DecodeRequest& request)
      : rest_(bytes), request_(request) {
    if (bytes.size() < kSignatureBytes ||
        png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kSignatureBytes) != 0) {
      throw DataLoss(str_cat(request.where, " expected a PNG image, got other bytes"));
    }
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors_, PngErrors::give_up,
                                  PngErrors::ignore);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw Error(ErrorCode::kResourceExhausted, str_cat(request.where, " libpng has no memory"));
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  void decode(PixelSink sink) {
    const auto bytes = static_cast<int64_t>(rest_.size());
    if (!protect([this] { read_header(); })) fail();
    const ImageSize size{png_get_image_height(png_, info_), png_get_image_width(png_, info_),
                         channels()};
    check_pixels(request_, size.height, size.width);
    const auto stored = static_cast<int64_t>(png_get_rowbytes(png_, info_)) * size.height;
    if (stored / kMostCompression > bytes) {
      throw DataLoss(str_cat(request_.where, " expected a whole PNG image, got ", bytes,
                             " bytes for ", size.height, " x ", size.width, " pixels"));
    }
    if (!protect([this, &size] { choose_output(static_cast<int>(size.channels)); })) fail();
    COHORT_CHECK(png_get_rowbytes(png_, info_) * static_cast<std::size_t>(size.height) ==
                     static_cast<std::size_t>(size.bytes()),
                 request_.where, " libpng gives rows of ", png_get_rowbytes(png_, info_), " bytes");
    uint8_t* pixels = sink(size);
    if (!protect([this, pixels, &size] { read_rows(pixels, size); })) fail();
  }

 private:
  /// libpng's calls come back to the reader.
  static PngReader& of(void* pointer) { return *static_cast<PngReader*>(pointer); }
  static void read(png_structp png, png_bytep out, std::size_t bytes) {
    PngReader& reader = of(png_get_io_ptr(png));
    if (reader.rest_.size() < bytes) png_error(png, "the data end too early");
    std::memcpy(out, reader.rest_.data(), bytes);
    reader.rest_.remove_prefix(bytes);
  }

  /// False if libpng gave up in `step`.
  template <class Step>
  bool protect(const Step& step) {
    if (setjmp(errors_.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libpng's way.
    step();
    return true;
  }

  void read_header() {
    png_set_read_fn(png_, this, read);
    // Texts and profiles do not change the pixels, and can be bombs. Gamma does not either, but for
    // one thing: where color becomes gray, libpng adds up light instead of numbers.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    constexpr auto kGammaChunks = std::to_array<png_byte>({'g', 'A', 'M', 'A', 0,  //
                                                           's', 'R', 'G', 'B', 0});
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT, kGammaChunks.data(), 2);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_pixels knows better.
    // By default a damaged chunk that is not critical is left out, and transparency with it.
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(png_, info_);
  }

  int channels() const {
    if (request_.channels != 0) return request_.channels;
    if (png_get_color_type(png_, info_) != PNG_COLOR_TYPE_PALETTE) {
      return png_get_channels(png_, info_);
    }
    return has_transparency() ? 4 : 3;
  }
  bool has_transparency() const { return png_get_valid(png_, info_, PNG_INFO_tRNS) != 0; }

  /// Everything as bytes of `channels` channels.
  void choose_output(int channels) {
    const int type = png_get_color_type(png_, info_);
    const bool wants_alpha = channels % 2 == 0;
    const bool wants_color = channels > 2;
    const bool is_color = (type & PNG_COLOR_MASK_COLOR) != 0;
    png_set_strip_16(png_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (!is_color) png_set_expand_gray_1_2_4_to_8(png_);
    if (has_transparency()) png_set_tRNS_to_alpha(png_);
    const bool has_alpha = (type & PNG_COLOR_MASK_ALPHA) != 0 || has_transparency();
    if (has_alpha && !wants_alpha) png_set_strip_alpha(png_);
    if (!has_alpha && wants_alpha) png_set_add_alpha(png_, kOpaqueSample, PNG_FILLER_AFTER);
    if (is_color && !wants_color) {
      constexpr int kSilently = 1;
      constexpr double kRed = 0.299;
      constexpr double kGreen = 0.587;
      png_set_rgb_to_gray(png_, kSilently, kRed, kGreen);
    }
    if (!is_color && wants_color) png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void read_rows(uint8_t* pixels, const ImageSize& size) {
    const int64_t row_bytes = size.width * size.channels;
    for (int pass = 0; pass < passes_; ++pass) {
      for (int64_t y = 0; y < size.height; ++y) {
        png_read_row(png_, pixels + y * row_bytes, nullptr);
      }
    }
    png_read_end(png_, nullptr);
  }

  [[noreturn]] void fail() const {
    throw DataLoss(
        str_cat(request_.where, " expected a whole PNG image, got damage: ", errors_.text.data()));
  }

  std::string_view rest_;  ///< Of the bytes.
  const DecodeRequest& request_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  PngErrors errors_;
};

}  // namespace

void decode_png(std::string_view bytes, const DecodeRequest& request, PixelSink sink) {
  PngReader(bytes, request).decode(sink);
}

}  // namespace cohort::internal::data
