// SPDX-License-Identifier: Apache-2.0
//
// How far a prefetch with kAutotune reads ahead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cohort::internal::data {

/// Doubles the buffer when its reader finds it empty although it has been full since it last grew:
/// then elements come and go unevenly, and a larger one would have bridged the gap. A buffer that
/// is never full waits for a slow step, which no size helps. TF: the prefetch autotuner's rule.
/// Beyond a few elements only what stays in the cache: written to memory and read back, elements
/// cost more than the gaps that more of them bridge.
/// Threads: thread-compatible.
class BufferTuner {
 public:
  explicit BufferTuner(int64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  std::size_t capacity() const { return capacity_; }
  /// There are `ready` elements after one more was read ahead.
  void filled(std::size_t ready) { was_full_ = was_full_ || ready >= capacity_; }
  /// The reader asks and finds `ready` elements, of which each takes about `element_bytes`.
  void reader_asks(std::size_t ready, int64_t element_bytes) {
    if (ready > 0 || !was_full_) return;
    was_full_ = false;
    const auto wanted = static_cast<int64_t>(2 * capacity_);
    const int64_t room = wanted <= kFew ? memory_bytes_ : std::min(memory_bytes_, kCacheBytes);
    const int64_t fits = room / std::max<int64_t>(1, element_bytes);
    if (wanted <= std::min(fits, kMost)) capacity_ = 2 * capacity_;
  }

 private:
  static constexpr int64_t kFew = 4;
  static constexpr int64_t kMost = 512;
  static constexpr int64_t kCacheBytes = 8 << 20;

  const int64_t memory_bytes_;
  std::size_t capacity_ = 2;
  bool was_full_ = false;
};

}  // namespace cohort::internal::data
