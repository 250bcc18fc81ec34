// SPDX-License-Identifier: Apache-2.0
//
// Terms. A block is a Header and the bytes behind it; its size is one of the class sizes. A thread
// owns a Cache: a list of free blocks per class. A block remembers the cache it came from. Freed by
// another thread it goes into that cache's inbox, a stack that the owner takes as a whole. Caches
// are never destroyed: when a thread ends, its cache is emptied and waits for the next thread.
//
// Budget: every free block, in a list or in an inbox, is paid for from one global count of bytes.
// A cache keeps what it has once paid (`granted`), so that a steady state touches no shared line.
//
// Invariants: lists and counters of a cache are written by its thread only, or by one that keeps
// this thread out (`gate`) because the system has no memory left; the inbox is written by anybody;
// a block in an inbox has been paid for by its sender.
#include "cohort/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "cohort/base/fork_locks.h"
#include "cohort/base/logging.h"
#include "cohort/base/mutex.h"
#include "cohort/runtime/internal/owner_gate.h"
#include "cohort/runtime/internal/refused_memory.h"

namespace cohort {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFineLimit = 512;  // Up to here: a class each 64 bytes.
constexpr std::size_t kFineClasses = kFineLimit / kAlignment;
constexpr std::size_t kLargest = std::size_t{1} << 30;   // Larger blocks are not kept.
constexpr std::size_t kClasses = kFineClasses + 4 * 21;  // Then four per doubling, up to kLargest.
constexpr std::size_t kUncached = kClasses;
constexpr std::size_t kMapLimit = std::size_t{1} << 20;  // From here on straight from mmap.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kGrantStep = std::size_t{1} << 20;
constexpr uint64_t kTrimInterval = 2048;  // Allocations: some training steps.

std::size_t round_up(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t class_of(std::size_t bytes) {
  if (bytes <= kFineLimit) return (bytes + kAlignment - 1) / kAlignment - 1;
  if (bytes > kLargest) return kUncached;
  // 2^e < bytes <= 2^(e+1), in quarters.
  const std::size_t e = std::bit_width(bytes - 1) - 1;
  const std::size_t quarter = (bytes - 1 - (std::size_t{1} << e)) >> (e - 2);
  return kFineClasses + 4 * (e - 9) + quarter;
}

std::size_t class_bytes(std::size_t c) {
  if (c < kFineClasses) return (c + 1) * kAlignment;
  const std::size_t e = 9 + (c - kFineClasses) / 4;
  return (std::size_t{1} << e) + (((c - kFineClasses) % 4 + 1) << (e - 2));
}

struct Cache;

struct alignas(kAlignment) Header {
  Header* next;       // In a list or an inbox.
  Cache* owner;       // Null: straight back to the system.
  std::size_t bytes;  // Behind the header.
  uint32_t size_class;
};
static_assert(sizeof(Header) == kAlignment);

// Written by one thread, read by any.
class Counter {
 public:
  void add(uint64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct FreeList {
  Header* head = nullptr;
  uint32_t count = 0;
  uint32_t unused = 0;  // The least count since the last trim: blocks that nobody needed.
};

struct Counters {
  Counter allocations, hits, bytes_out, bytes_back;
};

struct Cache {
  // Written by the owner's thread, inside the gate.
  internal::runtime::OwnerGate gate;
  FreeList lists[kClasses];
  std::size_t granted = 0;
  uint64_t next_trim = 0;  // In allocations of this cache.
  Counters counters;
  std::atomic<std::size_t> cached{0};
  // Constant once listed.
  Cache* next_cache = nullptr;
  // Written by anybody.
  alignas(kAlignment) std::atomic<Header*> inbox{nullptr};
  std::atomic<std::size_t> inbox_bytes{0};
  std::atomic<bool> alive{false};
};

// All of it is constant-initialised and never destroyed: blocks may be freed after main.
constinit std::atomic<Cache*> g_caches{nullptr};
constinit std::atomic<std::size_t> g_paid{0};
constinit std::atomic<std::size_t> g_limit{0};
// Of who joins or leaves g_caches, and of who empties them all.
constinit internal::base::Mutex g_registry;
// For threads whose cache is gone already.
constinit std::atomic<uint64_t> g_late_allocations{0}, g_late_out{0}, g_late_back{0};

std::size_t read_number(const char* path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : SIZE_MAX;
}

std::size_t default_limit() {
  if (const char* text = std::getenv("COHORT_MEMORY_CACHE_MB")) {
    char* end = nullptr;
    const unsigned long long mb = std::strtoull(text, &end, 10);
    if (end != text && *end == '\0') return static_cast<std::size_t>(mb) << 20;
    COHORT_LOG(kWarning, "[memory] expected COHORT_MEMORY_CACHE_MB to be a number, got \"", text,
               "\"; the bound is 1/8 of the memory");
  }
  const std::size_t physical = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::max<std::size_t>(1, std::min(physical, read_number("/sys/fs/cgroup/memory.max")) / 8);
}

std::size_t limit() {
  std::size_t bytes = g_limit.load(std::memory_order_relaxed);
  if (bytes == 0) [[unlikely]] {
    std::size_t expected = 0;
    bytes = std::max<std::size_t>(1, default_limit());
    if (!g_limit.compare_exchange_strong(expected, bytes)) bytes = expected;
  }
  return bytes;
}

bool pay(std::size_t bytes) {
  const std::size_t most = limit();
  std::size_t paid = g_paid.load(std::memory_order_relaxed);
  do {
    if (bytes > most || paid > most - bytes) return false;
  } while (!g_paid.compare_exchange_weak(paid, paid + bytes, std::memory_order_relaxed));
  return true;
}

void refund(std::size_t bytes) { g_paid.fetch_sub(bytes, std::memory_order_relaxed); }

// ---- the system ----

std::size_t map_length(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + sizeof(Header) + page - 1) / page * page;
}

// On a huge page's border, so that the kernel can use huge pages for all of it.
void* map_huge(std::size_t length) {
  const std::size_t reserved = length + kHugePage;
  void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > begin) munmap(raw, aligned - begin);
  const std::size_t behind = reserved - length - (aligned - begin);
  if (behind > 0) munmap(reinterpret_cast<void*>(aligned + length), behind);
  madvise(reinterpret_cast<void*>(aligned), length, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

// Null if the system has no memory.
Header* system_allocate(std::size_t bytes, std::size_t size_class, Cache* owner) {
  void* raw = nullptr;
  if (bytes < kMapLimit) {
    raw = std::aligned_alloc(kAlignment, bytes + sizeof(Header));
  } else if (bytes < kHugePage) {
    raw = mmap(nullptr, map_length(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
               0);
    if (raw == MAP_FAILED) raw = nullptr;
  } else {
    raw = map_huge(map_length(bytes));
  }
  if (raw == nullptr) return nullptr;
  return new (raw) Header{nullptr, owner, bytes, static_cast<uint32_t>(size_class)};
}

void system_free(Header* block) noexcept {
  if (block->bytes < kMapLimit) {
    std::free(block);
  } else {
    munmap(block, map_length(block->bytes));
  }
}

// ---- one thread's cache ----

// Without a destructor, so readable until the very end of the thread.
constinit thread_local Cache* t_cache = nullptr;
constinit thread_local bool t_over = false;

std::size_t cached_bytes(const Cache& cache) {
  return cache.cached.load(std::memory_order_relaxed);
}

Header* pop(Cache& cache, std::size_t size_class) {
  FreeList& list = cache.lists[size_class];
  Header* block = list.head;
  if (block == nullptr) return nullptr;
  list.head = block->next;
  list.unused = std::min(list.unused, --list.count);
  cache.cached.store(cached_bytes(cache) - block->bytes, std::memory_order_relaxed);
  return block;
}

void push(Cache& cache, Header* block) {
  FreeList& list = cache.lists[block->size_class];
  block->next = list.head;
  list.head = block;
  ++list.count;
  cache.cached.store(cached_bytes(cache) + block->bytes, std::memory_order_relaxed);
}

// Frees what no allocation has needed since the last trim, e.g. the sizes of another model. Not
// often: what one step leaves idle the next may want.
void trim_unused(Cache& cache) {
  const uint64_t now = cache.counters.allocations.get();
  if (now < cache.next_trim) return;
  cache.next_trim = now + kTrimInterval;
  for (std::size_t c = 0; c < kClasses; ++c) {
    for (uint32_t n = cache.lists[c].unused; n > 0; --n) system_free(pop(cache, c));
    cache.lists[c].unused = cache.lists[c].count;
  }
}

void return_grant(Cache& cache) {
  const std::size_t kept = cached_bytes(cache);
  if (cache.granted > kept) refund(cache.granted - kept);
  cache.granted = kept;
}

bool make_room(Cache& cache, std::size_t bytes) {
  if (g_paid.load(std::memory_order_relaxed) > limit()) return false;  // The limit was lowered.
  if (cached_bytes(cache) + bytes <= cache.granted) return true;
  const std::size_t missing = cached_bytes(cache) + bytes - cache.granted;
  for (std::size_t want : {std::max(missing, kGrantStep), missing}) {
    if (!pay(want)) continue;
    cache.granted += want;
    return true;
  }
  return false;
}

void keep(Cache& cache, Header* block) {
  cache.gate.enter();
  bool room = make_room(cache, block->bytes);
  if (!room) {
    trim_unused(cache);
    return_grant(cache);
    room = make_room(cache, block->bytes);
  }
  if (room) push(cache, block);
  cache.gate.leave();
  if (!room) system_free(block);
}

// Blocks that others sent back, now in the lists. They were paid for by their senders.
bool take_inbox(Cache& cache) {
  Header* block = cache.inbox.exchange(nullptr, std::memory_order_seq_cst);
  if (block == nullptr) return false;
  std::size_t bytes = 0;
  while (block != nullptr) {
    Header* next = block->next;
    bytes += block->bytes;
    push(cache, block);
    block = next;
  }
  // What is granted already covers a part of it, or all: the senders' payment for that goes back.
  const std::size_t paid = cache.granted + bytes;
  cache.granted = std::max(cache.granted, cached_bytes(cache));
  if (paid > cache.granted) refund(paid - cache.granted);
  cache.inbox_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return true;
}

// Anybody's thread: the inbox of a cache without a thread goes to the system.
void drop_inbox(Cache& cache) noexcept {
  Header* block = cache.inbox.exchange(nullptr, std::memory_order_seq_cst);
  while (block != nullptr) {
    Header* next = block->next;
    refund(block->bytes);
    cache.inbox_bytes.fetch_sub(block->bytes, std::memory_order_relaxed);
    system_free(block);
    block = next;
  }
}

void send_home(Header* block) noexcept {
  Cache& owner = *block->owner;
  if (!pay(block->bytes)) return system_free(block);
  owner.inbox_bytes.fetch_add(block->bytes, std::memory_order_relaxed);
  Header* head = owner.inbox.load(std::memory_order_relaxed);
  do {
    block->next = head;
  } while (!owner.inbox.compare_exchange_weak(head, block, std::memory_order_seq_cst,
                                              std::memory_order_relaxed));
  // Either this sees that the thread is gone, or the thread, when it went, saw the block.
  if (!owner.alive.load(std::memory_order_seq_cst)) drop_inbox(owner);
}

void empty(Cache& cache) {
  take_inbox(cache);
  for (std::size_t c = 0; c < kClasses; ++c) {
    while (Header* block = pop(cache, c)) system_free(block);
    cache.lists[c].unused = 0;
  }
  return_grant(cache);
}

void empty_own(Cache& cache) {
  cache.gate.enter();
  empty(cache);
  cache.gate.leave();
}

// Of all threads, whatever these do meanwhile.
void empty_all() {
  Cache* const own = t_cache;
  if (own != nullptr) empty_own(*own);
  const internal::base::MutexLock lock(g_registry);  // no fork between shut() and open()
  for (Cache* c = g_caches.load(std::memory_order_acquire); c != nullptr; c = c->next_cache) {
    if (c == own) continue;
    if (c->gate.shut()) {
      empty(*c);
      c->gate.open();
    } else {
      drop_inbox(*c);
    }
  }
}

// Errors: std::bad_alloc when not even the caches' memory is enough.
Header* allocate_from_system(std::size_t bytes, std::size_t size_class, Cache* owner) {
  if (Header* block = system_allocate(bytes, size_class, owner)) return block;
  empty_all();
  if (Header* block = system_allocate(bytes, size_class, owner)) return block;
  throw internal::runtime::RefusedMemory(bytes);
}

// A child must not find the lock taken, or its cache shut, by a thread that it does not have.
void keep_registry_free_over_fork() {
  [[maybe_unused]] static const bool kept = internal::base::keep_free_over_fork(g_registry);
}

Cache* adopt_cache() {
  keep_registry_free_over_fork();
  const internal::base::MutexLock lock(g_registry);
  for (Cache* c = g_caches.load(std::memory_order_acquire); c != nullptr; c = c->next_cache) {
    if (c->alive.load(std::memory_order_acquire)) continue;
    c->alive.store(true, std::memory_order_seq_cst);
    return c;
  }
  Cache* cache = new Cache;
  cache->alive.store(true, std::memory_order_relaxed);
  cache->next_cache = g_caches.load(std::memory_order_relaxed);
  g_caches.store(cache, std::memory_order_release);
  return cache;
}

void leave_cache(Cache* cache) {
  empty_own(*cache);
  const internal::base::MutexLock lock(g_registry);
  cache->alive.store(false, std::memory_order_seq_cst);
  drop_inbox(*cache);
}

// ---- the thread's way to its cache ----

struct AtThreadExit {
  ~AtThreadExit() {
    t_over = true;
    if (Cache* cache = std::exchange(t_cache, nullptr)) leave_cache(cache);
  }
  void arm() {}
};
thread_local AtThreadExit t_at_exit;

Cache* find_cache() {
  if (t_cache != nullptr) [[likely]]
    return t_cache;
  if (t_over) return nullptr;
  t_at_exit.arm();
  return t_cache = adopt_cache();
}

Header* allocate_late(std::size_t bytes) {
  Header* block = allocate_from_system(round_up(bytes), kUncached, nullptr);
  g_late_allocations.fetch_add(1, std::memory_order_relaxed);
  g_late_out.fetch_add(block->bytes, std::memory_order_relaxed);
  return block;
}

Header* allocate_block(Cache& cache, std::size_t bytes) {
  cache.counters.allocations.add(1);
  const std::size_t size_class = class_of(bytes);
  if (size_class == kUncached) {
    Header* block = allocate_from_system(round_up(bytes), kUncached, nullptr);
    cache.counters.bytes_out.add(block->bytes);
    return block;
  }
  cache.gate.enter();
  Header* block = pop(cache, size_class);
  if (block == nullptr && take_inbox(cache)) block = pop(cache, size_class);
  cache.gate.leave();
  if (block != nullptr) {
    cache.counters.hits.add(1);
  } else {
    block = allocate_from_system(class_bytes(size_class), size_class, &cache);
  }
  cache.counters.bytes_out.add(block->bytes);
  return block;
}

}  // namespace

namespace internal::runtime {

void* cached_allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  Cache* cache = find_cache();
  return (cache != nullptr ? allocate_block(*cache, bytes) : allocate_late(bytes)) + 1;
}

void cached_free(void* data) noexcept {
  if (data == nullptr) return;
  Header* block = static_cast<Header*>(data) - 1;
  // A thread that only frees needs no cache of its own.
  Cache* cache = t_cache;
  if (cache != nullptr) {
    cache->counters.bytes_back.add(block->bytes);
  } else {
    g_late_back.fetch_add(block->bytes, std::memory_order_relaxed);
  }
  if (block->owner == nullptr) return system_free(block);
  if (block->owner == cache) return keep(*cache, block);
  send_home(block);
}

}  // namespace internal::runtime

void set_memory_cache_limit(std::size_t bytes) {
  g_limit.store(std::max<std::size_t>(1, bytes), std::memory_order_relaxed);
}

void release_cached_memory() {
  if (t_cache != nullptr) empty_own(*t_cache);
}

void internal::runtime::release_all_cached_memory() { empty_all(); }

MemoryStats memory_stats() {
  const uint64_t late = g_late_allocations.load(std::memory_order_relaxed);
  uint64_t out = g_late_out.load(std::memory_order_relaxed);
  uint64_t back = g_late_back.load(std::memory_order_relaxed);
  MemoryStats stats{.allocations = late};
  for (Cache* c = g_caches.load(std::memory_order_acquire); c != nullptr; c = c->next_cache) {
    stats.allocations += c->counters.allocations.get();
    stats.cache_hits += c->counters.hits.get();
    stats.cached_bytes += cached_bytes(*c) + c->inbox_bytes.load(std::memory_order_relaxed);
    out += c->counters.bytes_out.get();
    back += c->counters.bytes_back.get();
  }
  stats.system_allocations = stats.allocations - stats.cache_hits;
  stats.bytes_in_use = out > back ? out - back : 0;
  return stats;
}

}  // namespace cohort
