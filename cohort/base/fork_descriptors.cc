// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/fork_descriptors.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cohort::internal::base {
namespace {

// Descriptors beyond these stay open in children.
constexpr std::size_t kWords = 1024;
constexpr std::size_t kBits = 64;

// A bit for each: nothing that fork could find locked.
constinit std::array<std::atomic<uint64_t>, kWords> g_descriptors = {};

void close_all() {
  for (std::size_t word = 0; word < kWords; ++word) {
    const uint64_t bits = g_descriptors[word].exchange(0);
    for (std::size_t bit = 0; bits >> bit != 0; ++bit) {
      if ((bits >> bit & 1) != 0) ::close(static_cast<int>(word * kBits + bit));
      if (bit + 1 == kBits) break;
    }
  }
}

}  // namespace

void close_in_children(int fd) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, close_all);
  const auto at = static_cast<std::size_t>(fd);
  if (fd >= 0 && at < kWords * kBits) {
    g_descriptors[at / kBits].fetch_or(uint64_t{1} << (at % kBits));
  }
}

bool close_no_more_in_children(int fd) {
  const auto at = static_cast<std::size_t>(fd);
  if (fd < 0 || at >= kWords * kBits) return true;
  const uint64_t bit = uint64_t{1} << (at % kBits);
  return (g_descriptors[at / kBits].fetch_and(~bit) & bit) != 0;
}

}  // namespace cohort::internal::base
