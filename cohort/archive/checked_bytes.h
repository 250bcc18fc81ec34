// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a file, or of a part of one, that stay where they are: large ones are read into the
// memory that they are for, and nowhere else.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/archive/file_bytes.h"

namespace cohort::internal::archive {

/// All are read once at first, and summed block by block. What read() gives are those bytes, even
/// if the file is written meanwhile: others are refused. Threads: one at a time.
class CheckedBytes {
 public:
  using Read = std::function<void(uint64_t place, void* out, std::size_t bytes)>;

  /// `shown`: the path that errors name. `read`: of any place; throws.
  /// Errors: what `read` throws. Cost: a pass over all bytes, in pieces that stay in the cache.
  CheckedBytes(const char* operation, std::string shown, uint64_t size, Read read);

  uint64_t size() const { return size_; }
  /// Of all bytes.
  uint32_t crc32() const { return crc32_; }
  /// How many stand before a trailer (internal/hdf5_trailer.h), or all where there is none; none:
  /// they are not those that the trailer was written for.
  std::optional<uint64_t> content() const;
  /// True: there is a trailer, and it says what the bytes before it are.
  bool has_trailer() const { return trailer_.has_value(); }

  /// Errors: DataLoss for bytes beyond the end, and where the file was changed; what `read` throws.
  void read(uint64_t place, void* out, std::size_t bytes);

 private:
  [[noreturn]] void refuse(const char* what) const;
  std::size_t length_of(uint64_t block) const;
  void check(uint64_t block, const char* bytes) const;
  const char* kept(uint64_t block);

  const char* const operation_;
  const std::string shown_;
  const uint64_t size_;
  const Read read_;
  std::vector<uint32_t> sums_ = {};  // CRC-32C by block
  uint32_t crc32_ = 0;
  std::optional<uint32_t> trailer_ = {};  // what it says
  uint32_t content_sum_ = 0;
  // Those that were wanted in parts, the oldest first.
  std::map<uint64_t, FileBytes> kept_ = {};
  std::deque<uint64_t> order_ = {};
};

}  // namespace cohort::internal::archive
