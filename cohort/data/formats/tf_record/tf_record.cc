// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/tf_record/tf_record.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/base/crc32c.h"
#include "cohort/base/errno_code.h"
#include "cohort/base/logging.h"
#include "cohort/data/formats/internal/file_reader.h"
#include "cohort/data/formats/internal/little_endian.h"
#include "cohort/data/formats/tf_record/internal/tf_record_format.h"

namespace cohort::data {
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;
constexpr std::size_t kMostAtOnce = 1 << 30;

}  // namespace

class TfRecordWriter::File {
 public:
  File(std::string path, const TfRecordWriterOptions& options)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail("create");
    const Compression format = internal::data::compression_of(path_, options.compression);
    compressed_ = format != Compression::kNone;
    constexpr int kWindowBits = 15;
    constexpr int kGzipFormat = 16;
    constexpr int kMemory = 8;
    const int bits = format == Compression::kGzip ? kWindowBits + kGzipFormat : kWindowBits;
    if (compressed_ && deflateInit2(&zlib_, options.level, Z_DEFLATED, bits, kMemory,
                                    Z_DEFAULT_STRATEGY) != Z_OK) {
      ::close(file_);
      throw InvalidArgument(str_cat(
          "[tf_record_writer] expected a compression level of 0 to 9, got ", options.level));
    }
  }
  ~File() {
    if (compressed_) deflateEnd(&zlib_);
    if (file_ >= 0) ::close(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::string_view record) {
    std::string& out = pending_;
    const std::size_t start = out.size();
    internal::data::append_little_endian<uint64_t>(out, record.size());
    internal::data::append_little_endian(
        out, internal::base::masked_crc32c(std::string_view(out).substr(start)));
    out += record;
    internal::data::append_little_endian(out, internal::base::masked_crc32c(record));
    if (out.size() >= kBufferBytes) write_pending(Z_NO_FLUSH);
  }
  void flush() { write_pending(Z_SYNC_FLUSH); }
  bool failed() const { return failed_; }
  void close() {
    write_pending(Z_FINISH);
    if (::close(std::exchange(file_, -1)) != 0) fail("close");
  }

 private:
  void write_pending(int zlib_flush) {
    COHORT_CHECK_STATE(!failed_, "[tf_record_writer] cannot go on with ", path_,
                       ", of which an earlier call could not write a part: write the file anew");
    if (!compressed_) {
      write_all(pending_);
    } else {
      deflate_pending(zlib_flush);
    }
    pending_.clear();
  }

  void deflate_pending(int zlib_flush) {
    std::array<char, 64 * 1024> out{};
    std::string_view left = pending_;
    do {
      // zlib counts in 32 bits.
      const std::string_view part = left.substr(0, kMostAtOnce);
      left.remove_prefix(part.size());
      zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
      zlib_.avail_in = static_cast<uInt>(part.size());
      do {
        zlib_.next_out = reinterpret_cast<Bytef*>(out.data());
        zlib_.avail_out = out.size();
        deflate(&zlib_, left.empty() ? zlib_flush : Z_NO_FLUSH);
        write_all({out.data(), out.size() - zlib_.avail_out});
      } while (zlib_.avail_out == 0);
    } while (!left.empty());
  }

  void write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(file_, bytes.data(), bytes.size());
      if (done < 0 && errno != EINTR) {
        failed_ = true;
        fail("write");
      }
      if (done > 0) bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  [[noreturn]] void fail(const char* verb) const {
    const int error = errno;
    throw Error(
        internal::base::code_of_errno(error),
        str_cat("[tf_record_writer] cannot ", verb, " ", path_, ": ", std::strerror(error)));
  }

  const std::string path_;
  int file_;
  bool compressed_ = false;
  bool failed_ = false;  ///< The file ends in the middle of something.
  z_stream zlib_{};
  std::string pending_;
};

TfRecordWriter::TfRecordWriter(std::string path, TfRecordWriterOptions options)
    : file_(std::make_unique<File>(std::move(path), options)) {}
TfRecordWriter::TfRecordWriter(TfRecordWriter&&) noexcept = default;
TfRecordWriter& TfRecordWriter::operator=(TfRecordWriter&&) noexcept = default;

TfRecordWriter::~TfRecordWriter() {
  // Who was told that a write failed knows that the file is not whole.
  if (file_ != nullptr && file_->failed()) return;
  try {
    close();
  } catch (const std::exception& e) {
    COHORT_LOG(kError, e.what());
  }
}

void TfRecordWriter::write(std::string_view record) {
  COHORT_CHECK_STATE(file_ != nullptr,
                     "[tf_record_writer.write] expected an open file, got one "
                     "that is closed");
  file_->write(record);
}

void TfRecordWriter::flush() {
  if (file_ != nullptr) file_->flush();
}

void TfRecordWriter::close() {
  if (file_ == nullptr) return;
  const std::unique_ptr<File> file = std::move(file_);
  file->close();
}

}  // namespace cohort::data
