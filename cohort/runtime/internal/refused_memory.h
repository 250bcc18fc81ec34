// SPDX-License-Identifier: Apache-2.0
//
// What is thrown where the system gives no more memory for tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <new>

namespace cohort::internal::runtime {

/// As every std::bad_alloc, and says what to do. Made without taking memory.
class RefusedMemory final : public std::bad_alloc {
 public:
  explicit RefusedMemory(std::size_t bytes) noexcept {
    std::snprintf(text_.data(), text_.size(),
                  "[memory] expected %.1f MB more for a tensor, got none from the system, with all "
                  "caches emptied: make the batches or the model smaller, use fewer replicas, or "
                  "raise the limit (ulimit -v, the container's memory)",
                  static_cast<double>(bytes) / 1e6);
  }
  const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 256> text_{};
};

}  // namespace cohort::internal::runtime
