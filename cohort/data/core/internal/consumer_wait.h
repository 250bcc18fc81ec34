// SPDX-License-Identifier: Apache-2.0
//
// Who waits for whom, in numbers.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace cohort::internal::data {

/// How much of its time the reader of a step waits for it; what steps below go by.
/// Threads: thread-safe.
class ConsumerWait {
 public:
  explicit ConsumerWait(std::shared_ptr<const ConsumerWait> reader) : reader_(std::move(reader)) {}

  void set(double share) { share_.store(share, std::memory_order_relaxed); }
  /// Of this step, or of the calmest one between it and the iterator's reader.
  double value() const {
    const double own = share_.load(std::memory_order_relaxed);
    return reader_ == nullptr ? own : std::min(own, reader_->value());
  }

 private:
  const std::shared_ptr<const ConsumerWait> reader_;  ///< Null: the iterator's.
  std::atomic<double> share_{1};
};

/// Measures a consumer_wait where the reader gets its elements. Threads: bound to the reader.
class ConsumerWaitMeter {
 public:
  explicit ConsumerWaitMeter(std::shared_ptr<ConsumerWait> consumer_wait)
      : consumer_wait_(std::move(consumer_wait)) {}

  /// Cost: looks at the clock after a wait, and else seldom.
  void reader_got_one(std::chrono::nanoseconds waited) {
    waited_ += waited;
    if (waited.count() == 0 && ++since_look_ < kSeldom) return;
    since_look_ = 0;
    const auto now = std::chrono::steady_clock::now();
    if (now - begin_ < kWindow) return;
    // What came before the first window is not known.
    if (begin_ != std::chrono::steady_clock::time_point{}) {
      consumer_wait_->set(std::chrono::duration<double>(waited_) / (now - begin_));
    }
    begin_ = now;
    waited_ = {};
  }

 private:
  static constexpr int kSeldom = 16;
  static constexpr std::chrono::milliseconds kWindow{10};

  const std::shared_ptr<ConsumerWait> consumer_wait_;
  std::chrono::steady_clock::time_point begin_{};
  std::chrono::nanoseconds waited_{0};
  int since_look_ = 0;
};

}  // namespace cohort::internal::data
