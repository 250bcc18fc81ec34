// SPDX-License-Identifier: Apache-2.0
//
// Where tensors' memory comes from. glibc returns every large block to the system and page-faults
// it anew in the next step; Cohort's cache keeps blocks instead, per thread and bounded.
//
//   set_memory_policy(MemoryPolicy::kCaching);     // at the start of main
//
// COHORT_MEMORY (system, caching) overrides what the program asks for;
// COHORT_MEMORY_CACHE_MB overrides the bound. Under AddressSanitizer the policy stays kSystem.
// Threads: all functions are thread-safe; tensors may be freed on any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort {

enum class MemoryPolicy {
  kSystem,   ///< LibTorch's own allocator, as it comes.
  kCaching,  ///< Cohort's cache under LibTorch's CPU tensors.
};

/// Sets where LibTorch's CPU tensors come from, from now on; tensors that exist keep their memory.
/// Without a call the first strategy chooses kCaching.
/// Threads: call it before other threads allocate tensors. TF: none (its BFC and pool allocators).
void set_memory_policy(MemoryPolicy policy);
/// The policy in force.
MemoryPolicy memory_policy();

/// The most bytes that the cache holds beyond those in use. Default: 1/8 of the memory. Blocks that
/// are kept beyond a lowered limit go as they are used and freed.
void set_memory_cache_limit(std::size_t bytes);
/// Returns the calling thread's cached blocks to the system.
void release_cached_memory();

/// Totals over all threads since the program started.
struct MemoryStats {
  uint64_t allocations = 0;         ///< Asked of the cache, empty tensors left out.
  uint64_t cache_hits = 0;          ///< Served without the system.
  uint64_t system_allocations = 0;  ///< allocations - cache_hits.
  std::size_t cached_bytes = 0;     ///< Held and not in use.
  std::size_t bytes_in_use = 0;     ///< Given out, rounded up to the cache's block sizes.
};
/// Threads: exact while no other thread allocates; else a recent value of each.
MemoryStats memory_stats();

namespace internal::runtime {

/// What the first strategy calls: the caching policy, unless the program or COHORT_MEMORY chose
/// another. Later calls do nothing.
void install_caching_allocator();

/// Returns the cached blocks of all threads to the system, when an allocation was refused.
void release_all_cached_memory();

/// The cache itself, without LibTorch in between. 64-byte aligned; null for zero bytes.
/// Errors: std::bad_alloc, once all threads' cached blocks have gone back to the system as well.
void* cached_allocate(std::size_t bytes);
/// Takes back what `cached_allocate` gave, on any thread, at any time.
void cached_free(void* data) noexcept;

}  // namespace internal::runtime
}  // namespace cohort
