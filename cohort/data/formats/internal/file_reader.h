// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a plain, zlib or gzip file from the front, in a buffer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/data/core/options.h"

namespace cohort::internal::data {

/// Where the bytes of a file come from, in pieces. Errors: DataLoss for damaged compressed data.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// At least 1 byte, or 0 at the end.
  virtual std::size_t read(char* out, std::size_t most) = 0;
  /// To a position in the bytes that read gives; false if there are fewer.
  virtual bool seek(int64_t offset) = 0;
};

/// What `chosen` is for this file: kAuto goes by the name's end.
Compression compression_of(const std::string& path, Compression chosen);

/// Errors: Error kNotFound (or what the system says) if the file cannot be opened.
std::unique_ptr<ByteSource> open_byte_source(const std::string& operation, const std::string& path,
                                             Compression compression);

/// Movable. Threads: one caller at a time.
class FileReader {
 public:
  /// `operation` begins the texts of errors, as "[dataset.tf_records]".
  FileReader(std::string operation, std::string path, const FileOptions& options);

  /// What is in the buffer, at least 1 byte; empty at the end.
  std::string_view peek();
  /// Of what peek gave.
  void consume(std::size_t bytes) { begin_ += bytes; }
  /// At least `bytes` bytes at once if they fit in the buffer and the file has them, else fewer.
  std::string_view peek_at_least(std::size_t bytes);
  /// Fewer bytes only at the end.
  std::size_t read(char* out, std::size_t bytes);
  /// Appends `bytes` bytes, or fewer at the end. A damaged count allocates no more than there is.
  std::size_t append(std::string& out, uint64_t bytes);

  /// In the uncompressed data.
  int64_t offset() const { return end_offset_ - static_cast<int64_t>(end_ - begin_); }
  /// Only before anything is read. Errors: InvalidArgument if the file ends before.
  void start_at(int64_t offset);

  const std::string& path() const { return path_; }
  /// Throws DataLoss that names file and offset.
  [[noreturn]] void fail(int64_t offset, const std::string& text) const;

 private:
  /// Moves what is left to the front and reads one piece more; false at the end.
  bool refill();

  std::string operation_;
  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::size_t capacity_;
  std::unique_ptr<char[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  int64_t end_offset_ = 0;  ///< Of end_ in the data.
};

}  // namespace cohort::internal::data
