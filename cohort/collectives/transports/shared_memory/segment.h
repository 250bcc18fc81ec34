// SPDX-License-Identifier: Apache-2.0
//
// Memory that processes of one machine share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace cohort::internal::collectives {

/// How another process of this machine finds a segment; plain data, sent as it is.
struct SegmentOffer {
  std::array<char, 40> machine = {};  ///< The machine's number since it was started.
  std::array<uint64_t, 2> token = {};
  uint64_t bytes = 0;
  int32_t process = 0;
  int32_t descriptor = -1;
};

/// Owns a mapping. Threads: thread-compatible; what lies in it has rules of its own.
class SharedSegment {
 public:
  SharedSegment() = default;
  /// Whether the system gives all pages at once, or each when it is first written, where one that
  /// it has not got ends the process by SIGBUS.
  enum class Pages : uint8_t { kAllNow, kWhenWritten };
  /// Zeros behind a page with the token. Errors: Error kResourceExhausted.
  static SharedSegment create(std::size_t bytes, Pages pages = Pages::kAllNow);
  /// Another process's; empty, with `why`, if it is of another machine or not to be opened.
  static SharedSegment open(const SegmentOffer& offer, std::string* why);
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept { swap(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept {
    swap(other);
    return *this;
  }

  explicit operator bool() const { return mapped_ != nullptr; }
  /// 64-byte aligned.
  std::byte* data() const { return mapped_ + kHeaderBytes; }
  std::size_t bytes() const { return bytes_; }
  /// Makes zeros of it, and gives its whole pages back to the system. Of one that was created here.
  void clear(std::size_t offset, std::size_t bytes);
  /// Of one that was created here, as long as it lives.
  SegmentOffer offer() const { return offer_; }

 private:
  static constexpr std::size_t kHeaderBytes = 4096;
  void swap(SharedSegment& other) noexcept {
    std::swap(mapped_, other.mapped_);
    std::swap(bytes_, other.bytes_);
    std::swap(offer_, other.offer_);
  }

  std::byte* mapped_ = nullptr;
  std::size_t bytes_ = 0;  // behind the header
  SegmentOffer offer_ = {};
};

}  // namespace cohort::internal::collectives
