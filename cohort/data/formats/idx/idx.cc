// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/idx/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cohort/base/check.h"

namespace cohort::data {
namespace {

constexpr unsigned kReadBuffer = 256 * 1024;
/// A byte of deflate cannot stand for more bytes than this.
constexpr int64_t kMostCompression = 1032;

/// A plain or gzip file, read from the front.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) {
      throw Error(ErrorCode::kNotFound,
                  str_cat("[read_idx] cannot open ", path, ": ", std::strerror(errno)));
    }
    gzbuffer(file_, kReadBuffer);
  }
  ~IdxFile() { gzclose_r(file_); }
  IdxFile(const IdxFile&) = delete;
  IdxFile& operator=(const IdxFile&) = delete;

  /// Exactly `bytes` bytes of `what`.
  void read(void* out, int64_t bytes, const char* what) {
    auto* to = static_cast<uint8_t*>(out);
    for (int64_t done = 0; done < bytes;) {
      const int64_t part = std::min<int64_t>(bytes - done, 1 << 30);
      const int got = gzread(file_, to + done, static_cast<unsigned>(part));
      if (got <= 0) {
        fail(str_cat("expected ", bytes, " bytes of ", what, ", got ", done, reason()));
      }
      done += got;
      offset_ += got;
    }
  }

  /// The end must be here; also checks gzip's checksum.
  void expect_end() {
    uint8_t extra = 0;
    const int got = gzread(file_, &extra, 1);
    if (got > 0) fail("expected the end of the file, got more bytes");
    if (got < 0 || reason() != "") fail(str_cat("expected the end of the file", reason()));
  }

  [[noreturn]] void fail(const std::string& text) const {
    throw DataLoss(str_cat("[read_idx] ", path_, " at offset ", offset_, ": ", text));
  }

  /// More data than this file can hold is damage, not a reason to allocate.
  void check_plausible(int64_t bytes) const {
    std::error_code error;
    const auto on_disk = std::filesystem::file_size(path_, error);
    if (error) return;  // Not a regular file.
    const auto size = static_cast<int64_t>(on_disk);
    const int64_t most = gzdirect(file_) != 0 ? size : size * kMostCompression;
    if (bytes > most) {
      fail(str_cat("expected ", bytes, " bytes of values, got a file of ", size, " bytes"));
    }
  }

 private:
  std::string reason() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (code == Z_OK || code == Z_STREAM_END) return "";
    return str_cat(" (", text, ")");
  }

  const std::string path_;
  gzFile file_;
  int64_t offset_ = 0;  ///< In the uncompressed data.
};

DType dtype_of_code(const IdxFile& file, uint8_t code) {
  switch (code) {
    case 0x08:
      return DType::Byte;
    case 0x09:
      return DType::Char;
    case 0x0B:
      return DType::Short;
    case 0x0C:
      return DType::Int;
    case 0x0D:
      return DType::Float;
    case 0x0E:
      return DType::Double;
    default:
      file.fail(str_cat("expected a type code of 8, 9 or 11 to 14, got ", int{code}));
  }
}

struct IdxHeader {
  Shape shape = {};
  DType dtype = kUint8;
};

IdxHeader read_header(IdxFile& file, int64_t& bytes) {
  std::array<uint8_t, 4> magic{};
  file.read(magic.data(), 4, "magic number");
  if (magic[0] != 0 || magic[1] != 0) {
    file.fail("expected an IDX file, which begins with two zero bytes");
  }
  IdxHeader header{{}, dtype_of_code(file, magic[2])};
  // Zero for no dimension, as strides count: the product of the others has to fit, too.
  auto span = static_cast<int64_t>(c10::elementSize(header.dtype));
  bytes = span;
  for (int i = 0; i < magic[3]; ++i) {
    std::array<uint8_t, 4> d{};
    file.read(d.data(), 4, "a dimension");
    const int64_t dim = int64_t{d[0]} << 24 | d[1] << 16 | d[2] << 8 | d[3];
    if (__builtin_mul_overflow(span, std::max<int64_t>(dim, 1), &span)) {
      file.fail("expected dimensions whose product fits in 63 bits");
    }
    bytes *= dim;
    header.shape.push_back(dim);
  }
  file.check_plausible(bytes);
  return header;
}

/// IDX is big-endian.
void swap_to_native(uint8_t* data, int64_t bytes, int64_t width) {
  if (width == 1 || std::endian::native == std::endian::big) return;
  for (int64_t i = 0; i < bytes; i += width) std::reverse(data + i, data + i + width);
}

}  // namespace

Tensor read_idx(const std::string& path) {
  IdxFile file(path);
  int64_t bytes = 0;
  const IdxHeader header = read_header(file, bytes);
  Tensor out = empty(header.shape, header.dtype);
  auto* data = static_cast<uint8_t*>(out.data_ptr());
  file.read(data, bytes, "values");
  file.expect_end();
  swap_to_native(data, bytes, static_cast<int64_t>(out.element_size()));
  return out;
}

}  // namespace cohort::data
