// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/data/formats/internal/file_reader.h"

namespace cohort::internal::data {
namespace {

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::string operation, std::string path)
      : operation_(std::move(operation)),
        path_(std::move(path)),
        file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) fail("open");
  }
  ~PlainSource() override { ::close(file_); }

  std::size_t read(char* out, std::size_t most) override {
    while (true) {
      const ssize_t got = ::read(file_, out, most);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) fail("read");
    }
  }
  bool seek(int64_t offset) override {
    const off_t size = ::lseek(file_, 0, SEEK_END);
    return size >= offset && ::lseek(file_, offset, SEEK_SET) == offset;
  }
  const std::string& path() const { return path_; }
  const std::string& operation() const { return operation_; }

 private:
  [[noreturn]] void fail(const char* verb) const {
    const int error = errno;
    throw Error(base::code_of_errno(error),
                str_cat(operation_, " cannot ", verb, " ", path_, ": ", std::strerror(error)));
  }

  const std::string operation_;
  const std::string path_;
  const int file_;
};

/// A zlib stream, or gzip members one after the other.
class InflateSource final : public ByteSource {
 public:
  InflateSource(const std::string& operation, const std::string& path, bool gzip)
      : file_(operation, path), gzip_(gzip) {
    constexpr int kWindowBits = 15;
    constexpr int kGzipFormat = 16;
    COHORT_CHECK(inflateInit2(&zlib_, gzip ? kWindowBits + kGzipFormat : kWindowBits) == Z_OK,
                 "zlib");
  }
  ~InflateSource() override { inflateEnd(&zlib_); }

  std::size_t read(char* out, std::size_t most) override {
    zlib_.next_out = reinterpret_cast<Bytef*>(out);
    zlib_.avail_out = static_cast<uInt>(std::min<std::size_t>(most, 1U << 30));
    const uInt room = zlib_.avail_out;
    while (zlib_.avail_out == room) {
      // At the end of the file zlib may still hold bytes that found no room before.
      const bool more = zlib_.avail_in > 0 || fill();
      if (!more && !in_stream_) break;
      if (!in_stream_) begin_stream();
      const int code = inflate(&zlib_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        in_stream_ = false;
        inflateReset(&zlib_);
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        fail(zlib_.msg == nullptr ? "not readable" : zlib_.msg);
      } else if (!more && zlib_.avail_out == room) {
        fail("the file ends in the middle");
      }
    }
    given_ += room - zlib_.avail_out;
    return room - zlib_.avail_out;
  }

  bool seek(int64_t offset) override {
    std::array<char, 4096> scratch{};
    while (given_ < offset) {
      const auto part = std::min<int64_t>(scratch.size(), offset - given_);
      if (read(scratch.data(), static_cast<std::size_t>(part)) == 0) return false;
    }
    return true;
  }

 private:
  bool fill() {
    const std::size_t got = file_.read(in_.data(), in_.size());
    raw_ += static_cast<int64_t>(got);
    zlib_.next_in = reinterpret_cast<Bytef*>(in_.data());
    zlib_.avail_in = static_cast<uInt>(got);
    return got > 0;
  }
  void begin_stream() {
    if (any_stream_ && !gzip_) fail("more bytes after the end of the zlib stream");
    any_stream_ = in_stream_ = true;
  }

  [[noreturn]] void fail(const char* text) const {
    throw DataLoss(str_cat(file_.operation(), " ", file_.path(), " at byte ",
                           raw_ - static_cast<int64_t>(zlib_.avail_in),
                           " of the file: damaged compressed data (", text, ")"));
  }

  PlainSource file_;
  const bool gzip_;
  z_stream zlib_{};
  std::array<char, 64 * 1024> in_{};
  int64_t raw_ = 0;         ///< Bytes read from the file.
  int64_t given_ = 0;       ///< Bytes given out.
  bool in_stream_ = false;  ///< Between the first byte of a stream and its end.
  bool any_stream_ = false;
};

}  // namespace

Compression compression_of(const std::string& path, Compression chosen) {
  if (chosen != Compression::kAuto) return chosen;
  if (path.ends_with(".gz")) return Compression::kGzip;
  if (path.ends_with(".zlib") || path.ends_with(".zz")) return Compression::kZlib;
  return Compression::kNone;
}

std::unique_ptr<ByteSource> open_byte_source(const std::string& operation, const std::string& path,
                                             Compression compression) {
  const Compression format = compression_of(path, compression);
  if (format == Compression::kNone) return std::make_unique<PlainSource>(operation, path);
  return std::make_unique<InflateSource>(operation, path, format == Compression::kGzip);
}

}  // namespace cohort::internal::data
