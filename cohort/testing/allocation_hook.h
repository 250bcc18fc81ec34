// SPDX-License-Identifier: Apache-2.0
//
// C++'s allocations of a whole test program, counted and, where a test says so, refused. Memory of
// tensors does not come this way (memory_stats() counts it). Defines operator new: for one source
// of a program. Under a sanitizer, which has its own, nothing is counted or refused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "cohort/base/sanitizers.h"

namespace cohort::testing {

inline constinit std::atomic<int64_t> g_allocations{0};
/// Asked before each allocation, on its thread: true refuses it. Null: none is.
inline constinit std::atomic<bool (*)()> g_refuse_allocation{nullptr};

}  // namespace cohort::testing

#if !COHORT_UNDER_SANITIZER
// Not inline: the compiler would see memory of malloc given to delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  cohort::testing::g_allocations.fetch_add(1, std::memory_order_relaxed);
  const auto refuse = cohort::testing::g_refuse_allocation.load(std::memory_order_relaxed);
  void* data = refuse != nullptr && refuse() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept { std::free(data); }
#endif
