// SPDX-License-Identifier: Apache-2.0
//
// JPEG images by libjpeg-turbo. Its functions end in an error by longjmp, so what runs between
// `protect` and them holds nothing with a destructor.
#include <stdio.h>  // jpeglib.h needs it before.

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/data/image/internal/image_codec.h"

#ifndef JCS_ALPHA_EXTENSIONS
#error "libjpeg-turbo is needed (Debian: libjpeg-dev)"
#endif

namespace cohort::internal::data {
namespace {

/// Of a progressive image: each costs a pass over all of it, and a file can ask for many.
constexpr int kMostScans = 100;
constexpr int kDctRatios[] = {8, 4, 2};
/// Each block of 64 pixels takes at least one bit.
constexpr int64_t kMostPixelsPerByte = int64_t{64} * 8;
constexpr int kOpaque = 255;

/// What libjpeg has to say. It knows this struct by its first member.
struct Messages {
  jpeg_error_mgr base{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> text{};
  bool damaged = false;  ///< `text` says how.
};

Messages& messages_of(j_common_ptr info) { return *reinterpret_cast<Messages*>(info->err); }

[[noreturn]] void give_up(j_common_ptr info) {
  Messages& messages = messages_of(info);
  messages.base.format_message(info, messages.text.data());
  std::longjmp(messages.jump, 1);  // NOLINT(cert-err52-cpp): through C.
}

/// Warnings that mean wrong pixels; others (bytes between markers, unknown versions) do not.
bool means_damage(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC || code == JWRN_NOT_SEQUENTIAL;
}

void note(j_common_ptr info, int level) {
  Messages& messages = messages_of(info);
  if (level >= 0 || messages.damaged || !means_damage(messages.base.msg_code)) return;
  messages.damaged = true;
  messages.base.format_message(info, messages.text.data());
}

void limit_scans(j_common_ptr info) {
  const auto* reader = reinterpret_cast<j_decompress_ptr>(info);
  if (info->is_decompressor == 0 || reader->input_scan_number <= kMostScans) return;
  info->err->msg_code = JERR_BAD_PROGRESSION;
  (*info->err->error_exit)(info);
}

/// Of the usual weights, as libjpeg rounds them.
uint8_t luma(int r, int g, int b) {
  constexpr int kBits = 16;
  return static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + (1 << (kBits - 1))) >> kBits);
}

/// A row of CMYK pixels; Adobe's programs store them inverted.
void convert_cmyk(const uint8_t* row, int64_t width, bool inverted, int64_t channels,
                  uint8_t* out) {
  for (int64_t x = 0; x < width; ++x, row += 4, out += channels) {
    std::array<int, 3> rgb{};
    for (std::size_t i = 0; i < 3; ++i) {
      const int ink = inverted ? row[i] : kOpaque - row[i];
      rgb[i] = ink * (inverted ? row[3] : kOpaque - row[3]) / kOpaque;
    }
    if (channels == 1) {
      out[0] = luma(rgb[0], rgb[1], rgb[2]);
      continue;
    }
    for (std::size_t i = 0; i < 3; ++i) out[i] = static_cast<uint8_t>(rgb[i]);
    if (channels == 4) out[3] = kOpaque;
  }
}

/// Threads: one caller at a time. Its memory serves one image after the other.
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&messages_.base);
    messages_.base.error_exit = give_up;
    messages_.base.emit_message = note;
    progress_.progress_monitor = limit_scans;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  void decode(std::string_view bytes, const DecodeRequest& request, PixelSink sink) {
    request_ = &request;
    messages_.damaged = false;
    const AtEnd at_end{info_};
    open(bytes);
    choose_output();
    if (!protect([this] { jpeg_start_decompress(&info_); })) fail();
    const ImageSize size{info_.output_height, info_.output_width, channels_};
    uint8_t* pixels = sink(size);
    if (cmyk_) row_.resize(static_cast<std::size_t>(size.width) * 4);
    if (!protect([this, pixels] { read_rows(pixels); })) fail();
    if (messages_.damaged && !request.accept_damaged) fail();
  }

 private:
  /// Frees what the image took, whatever happened.
  struct AtEnd {
    jpeg_decompress_struct& info;
    ~AtEnd() { jpeg_abort_decompress(&info); }
  };

  /// False if libjpeg gave up in `step`.
  template <class Step>
  bool protect(const Step& step) {
    if (setjmp(messages_.jump) != 0) return false;  // NOLINT(cert-err52-cpp): libjpeg's way.
    step();
    return true;
  }

  void open(std::string_view bytes) {
    const bool opened = protect([this, bytes] {
      if (info_.mem == nullptr) {
        jpeg_create_decompress(&info_);
        info_.progress = &progress_;
      }
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
    if (!opened) fail();
    check_pixels(*request_, info_.image_height, info_.image_width);
    const int64_t pixels = int64_t{info_.image_height} * info_.image_width;
    if (info_.arith_code == 0 && !request_->accept_damaged &&
        pixels / kMostPixelsPerByte > static_cast<int64_t>(bytes.size())) {
      throw DataLoss(str_cat(request_->where, " expected a whole JPEG image, got ", bytes.size(),
                             " bytes for ", info_.image_height, " x ", info_.image_width,
                             " pixels"));
    }
  }

  void choose_output() {
    cmyk_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    channels_ = request_->channels;
    if (channels_ == 0) channels_ = info_.num_components == 1 ? 1 : 3;
    info_.out_color_space = cmyk_            ? JCS_CMYK
                            : channels_ == 1 ? JCS_GRAYSCALE
                            : channels_ == 3 ? JCS_RGB
                                             : JCS_EXT_RGBA;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(ratio());
    info_.dct_method = request_->fast_dct ? JDCT_IFAST : JDCT_ISLOW;
    info_.do_fancy_upsampling = request_->fancy_upscaling ? TRUE : FALSE;
  }

  int ratio() const {
    if (request_->least_height == 0) return request_->ratio;
    for (int ratio : kDctRatios) {
      if ((int64_t{info_.image_height} + ratio - 1) / ratio >= request_->least_height &&
          (int64_t{info_.image_width} + ratio - 1) / ratio >= request_->least_width) {
        return ratio;
      }
    }
    return 1;
  }

  void read_rows(uint8_t* pixels) {
    constexpr unsigned kRowsAtOnce = 16;
    const int64_t row_bytes = int64_t{info_.output_width} * channels_;
    std::array<JSAMPROW, kRowsAtOnce> rows{};
    while (info_.output_scanline < info_.output_height) {
      uint8_t* out = pixels + info_.output_scanline * row_bytes;
      if (cmyk_) {
        rows[0] = row_.data();
        jpeg_read_scanlines(&info_, rows.data(), 1);
        convert_cmyk(row_.data(), info_.output_width, info_.saw_Adobe_marker != 0, channels_, out);
        continue;
      }
      const unsigned count = std::min(kRowsAtOnce, info_.output_height - info_.output_scanline);
      for (unsigned i = 0; i < count; ++i) rows[i] = out + i * row_bytes;
      jpeg_read_scanlines(&info_, rows.data(), count);
    }
  }

  [[noreturn]] void fail() const {
    const char* text = messages_.text.data();
    switch (messages_.damaged ? 0 : messages_.base.msg_code) {
      case JERR_OUT_OF_MEMORY:
        throw Error(ErrorCode::kResourceExhausted, str_cat(request_->where, " ", text));
      case JERR_CONVERSION_NOTIMPL:
      case JERR_BAD_PRECISION:
#if JPEG_LIB_VERSION < 70  // later interfaces of the library read arithmetic coding
      case JERR_ARITH_NOTIMPL:
#endif
      case JERR_SOF_UNSUPPORTED:
        throw Unimplemented(
            str_cat(request_->where, " JPEG images of this kind are not read: ", text));
      default:
        throw DataLoss(
            str_cat(request_->where, " expected a whole JPEG image, got damage: ", text));
    }
  }

  jpeg_decompress_struct info_{};
  Messages messages_;
  jpeg_progress_mgr progress_{};
  std::vector<uint8_t> row_;  ///< Of CMYK pixels.
  // Of the image at hand.
  const DecodeRequest* request_ = nullptr;
  bool cmyk_ = false;
  int channels_ = 0;
};

}  // namespace

void decode_jpeg(std::string_view bytes, const DecodeRequest& request, PixelSink sink) {
  // A decoder has tables and buffers that are costly to make for every image.
  static thread_local JpegReader reader;
  reader.decode(bytes, request, sink);
}

}  // namespace cohort::internal::data
