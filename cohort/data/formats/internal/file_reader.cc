// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/formats/internal/file_reader.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/check.h"

namespace cohort::internal::data {
namespace {

constexpr int64_t kLeastBuffer = 64;

}  // namespace

FileReader::FileReader(std::string operation, std::string path, const FileOptions& options)
    : operation_(std::move(operation)),
      path_(std::move(path)),
      source_(open_byte_source(operation_, path_, options.compression)),
      capacity_(static_cast<std::size_t>(std::max(options.buffer_bytes, kLeastBuffer))),
      buffer_(new char[capacity_]) {}

bool FileReader::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const std::size_t got = source_->read(buffer_.get() + end_, capacity_ - end_);
  end_ += got;
  end_offset_ += static_cast<int64_t>(got);
  return got > 0;
}

std::string_view FileReader::peek() { return peek_at_least(1); }

std::string_view FileReader::peek_at_least(std::size_t bytes) {
  while (end_ - begin_ < std::min(bytes, capacity_) && refill()) {
  }
  return {buffer_.get() + begin_, end_ - begin_};
}

std::size_t FileReader::read(char* out, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const std::string_view part = peek().substr(0, bytes - done);
    if (part.empty()) break;
    std::memcpy(out + done, part.data(), part.size());
    consume(part.size());
    done += part.size();
  }
  return done;
}

std::size_t FileReader::append(std::string& out, uint64_t bytes) {
  uint64_t left = bytes;
  while (left > 0) {
    const std::string_view part = peek().substr(0, left);
    if (part.empty()) break;
    out += part;
    consume(part.size());
    left -= part.size();
  }
  return bytes - left;
}

void FileReader::start_at(int64_t offset) {
  COHORT_CHECK_ARG(source_->seek(offset), operation_, " expected at least ", offset, " bytes in ",
                   path_,
                   " to go on there, got fewer: the file is not the one that was read before");
  end_offset_ = offset;
}

void FileReader::fail(int64_t offset, const std::string& text) const {
  throw DataLoss(str_cat(operation_, " ", path_, " at byte ", offset, ": ", text));
}

}  // namespace cohort::internal::data
