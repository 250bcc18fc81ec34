// SPDX-License-Identifier: Apache-2.0
#include "cohort/archive/checked_bytes.h"

#include <algorithm>
#include <utility>

#include "cohort/archive/internal/hdf5_trailer.h"
#include "cohort/base/check.h"
#include "cohort/base/crc32.h"
#include "cohort/base/crc32c.h"

namespace cohort::internal::archive {
namespace {

constexpr std::size_t kBlock = std::size_t{64} << 10;
// So many are read at once, and are still in the cache when they are summed.
constexpr std::size_t kBlocksOfPiece = 4;
constexpr std::size_t kMostKept = 64;

}  // namespace

CheckedBytes::CheckedBytes(const char* operation, std::string shown, uint64_t size, Read read)
    : operation_(operation), shown_(std::move(shown)), size_(size), read_(std::move(read)) {
  if (size_ >= kTrailerBytes) {
    char last[kTrailerBytes];
    read_(size_ - kTrailerBytes, last, kTrailerBytes);
    trailer_ = trailer_sum({last, kTrailerBytes});
  }
  const uint64_t content = size_ - (trailer_ ? kTrailerBytes : 0);
  FileBytes piece(kBlocksOfPiece * kBlock);
  for (uint64_t place = 0; place < size_; place += piece.size) {
    const auto length = static_cast<std::size_t>(std::min<uint64_t>(piece.size, size_ - place));
    read_(place, piece.data.get(), length);
    const std::string_view got(piece.data.get(), length);
    crc32_ = base::crc32(got, crc32_);
    for (std::size_t at = 0; at < length; at += kBlock) {
      sums_.push_back(base::crc32c(got.substr(at, kBlock)));
    }
    if (!trailer_ || place >= content) continue;
    content_sum_ = base::crc32c(got.substr(0, content - place), content_sum_);
  }
}

std::optional<uint64_t> CheckedBytes::content() const {
  if (!trailer_) return size_;
  if (*trailer_ != content_sum_) return {};
  return size_ - kTrailerBytes;
}

void CheckedBytes::refuse(const char* what) const {
  throw DataLoss(str_cat("[", operation_, "] ", shown_, ": the file ", what));
}

std::size_t CheckedBytes::length_of(uint64_t block) const {
  return static_cast<std::size_t>(std::min<uint64_t>(kBlock, size_ - block * kBlock));
}

void CheckedBytes::check(uint64_t block, const char* bytes) const {
  if (base::crc32c({bytes, length_of(block)}) == sums_[block]) return;
  refuse("was changed while it was read");
}

const char* CheckedBytes::kept(uint64_t block) {
  const auto found = kept_.find(block);
  if (found != kept_.end()) return found->second.data.get();
  FileBytes bytes(length_of(block));
  read_(block * kBlock, bytes.data.get(), bytes.size);
  check(block, bytes.data.get());
  if (order_.size() == kMostKept) {
    kept_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(block);
  return kept_.emplace(block, std::move(bytes)).first->second.data.get();
}

void CheckedBytes::read(uint64_t place, void* out, std::size_t bytes) {
  if (place > size_ || bytes > size_ - place) refuse("ends before what it says is in it");
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const uint64_t block = place / kBlock;
    const auto inside = static_cast<std::size_t>(place % kBlock);
    std::size_t length = std::min(bytes, length_of(block) - inside);
    if (length < length_of(block)) {
      std::copy_n(kept(block) + inside, length, to);
    } else {
      const std::size_t whole = std::clamp<std::size_t>(bytes / kBlock, 1, kBlocksOfPiece);
      if (whole > 1) length = whole * kBlock;
      read_(place, to, length);
      for (std::size_t i = 0; i < whole; ++i) check(block + i, to + i * kBlock);
    }
    to += length;
    place += length;
    bytes -= length;
  }
}

}  // namespace cohort::internal::archive
