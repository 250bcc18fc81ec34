// SPDX-License-Identifier: Apache-2.0
//
// Which allocator stands under LibTorch's CPU tensors. The cache itself is memory_cache.cc.
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "cohort/base/fork_locks.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/base/sanitizers.h"
#include "cohort/runtime/memory.h"

namespace cohort {
namespace {

struct CachingAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = internal::runtime::cached_allocate(bytes);
    return {data, data, &internal::runtime::cached_free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &internal::runtime::cached_free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

constinit internal::base::Mutex g_policy_lock;
[[maybe_unused]] const bool policy_kept = internal::base::keep_free_over_fork(g_policy_lock);
constinit bool g_policy_chosen COHORT_GUARDED_BY(g_policy_lock) = false;
constinit std::atomic<MemoryPolicy> g_policy{MemoryPolicy::kSystem};

MemoryPolicy wanted(MemoryPolicy asked) {
#if COHORT_ADDRESS_SANITIZER
  (void)asked;
  return MemoryPolicy::kSystem;
#else
  const char* text = std::getenv("COHORT_MEMORY");
  const std::string_view value = text ? text : "";
  if (value == "system") return MemoryPolicy::kSystem;
  if (value == "caching") return MemoryPolicy::kCaching;
  if (!value.empty()) {
    COHORT_LOG(kWarning, "[memory] expected COHORT_MEMORY to be system or caching, got \"", value,
               "\"; it is ignored");
  }
  return asked;
#endif
}

// Never destroyed: LibTorch keeps the pointer.
CachingAllocator& caching_allocator() {
  static auto* allocator = new CachingAllocator;
  return *allocator;
}

void apply_policy(MemoryPolicy policy) COHORT_REQUIRES(g_policy_lock) {
  constexpr uint8_t kPriority = 1;  // Above LibTorch's own.
  if (policy == MemoryPolicy::kCaching) {
    c10::SetCPUAllocator(&caching_allocator(), kPriority);
  } else if (g_policy.load(std::memory_order_relaxed) == MemoryPolicy::kCaching) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority);
  }
  g_policy.store(policy, std::memory_order_release);
  g_policy_chosen = true;
}

}  // namespace

void set_memory_policy(MemoryPolicy policy) {
  const internal::base::MutexLock lock(g_policy_lock);
  apply_policy(wanted(policy));
}

MemoryPolicy memory_policy() { return g_policy.load(std::memory_order_acquire); }

void internal::runtime::install_caching_allocator() {
  const internal::base::MutexLock lock(g_policy_lock);
  if (!g_policy_chosen) apply_policy(wanted(MemoryPolicy::kCaching));
}

}  // namespace cohort
