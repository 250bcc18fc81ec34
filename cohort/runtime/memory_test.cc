// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/memory.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "cohort/base/sanitizers.h"
#include "cohort/runtime/tensor.h"
#include "cohort/testing/child.h"

constexpr bool kAddressSanitizer = COHORT_ADDRESS_SANITIZER != 0;

namespace cohort {
namespace {

using internal::runtime::cached_allocate;
using internal::runtime::cached_free;

// Allocates on each of `rounds` rounds one block of every size, then frees all.
void churn(const std::vector<std::size_t>& sizes, int rounds) {
  std::vector<void*> blocks;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t size : sizes) blocks.push_back(cached_allocate(size));
    for (void* block : blocks) cached_free(block);
    blocks.clear();
  }
}

TEST(Memory, BlocksAreAlignedAndWritable) {
  for (std::size_t bytes : {1, 63, 64, 65, 511, 512, 513, 640, 641, 4096, 100000, 1 << 20,
                            (1 << 20) + 1, (2 << 20) + 5, 9 << 20}) {
    void* block = cached_allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u) << bytes;
    std::memset(block, 0x5a, bytes);
    cached_free(block);
  }
  EXPECT_EQ(cached_allocate(0), nullptr);
  cached_free(nullptr);
}

TEST(Memory, LiveBlocksNeverOverlap) {
  std::mt19937 random(3);
  struct Live {
    unsigned char* data;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Live> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 100 || random() % 2) {
      const std::size_t bytes = 1 + random() % (1u << (random() % 16));
      auto* data = static_cast<unsigned char*>(cached_allocate(bytes));
      live.push_back({data, bytes, static_cast<unsigned char>(i)});
      std::memset(data, live.back().mark, bytes);
    } else {
      std::swap(live[random() % live.size()], live.back());
      const Live last = live.back();
      for (std::size_t b = 0; b < last.bytes; ++b) ASSERT_EQ(last.data[b], last.mark);
      cached_free(last.data);
      live.pop_back();
    }
  }
  for (const Live& block : live) cached_free(block.data);
}

TEST(Memory, AFreedBlockComesBackToTheNextOfItsSize) {
  release_cached_memory();
  void* first = cached_allocate(200000);
  cached_free(first);
  void* second = cached_allocate(199000);
  EXPECT_EQ(first, second);
  cached_free(second);
}

TEST(Memory, SteadyStateIsServedFromTheCache) {
  const std::vector<std::size_t> sizes = {10, 32768, 401408, 802816, 5 << 20, 10, 256};
  churn(sizes, 2);
  const MemoryStats before = memory_stats();
  churn(sizes, 100);
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.allocations - before.allocations, 100 * sizes.size());
  EXPECT_EQ(after.system_allocations, before.system_allocations);
  EXPECT_EQ(after.cached_bytes, before.cached_bytes);
  EXPECT_EQ(after.bytes_in_use, before.bytes_in_use);
}

TEST(Memory, CountsBytesInUse) {
  const std::size_t before = memory_stats().bytes_in_use;
  void* block = cached_allocate(1 << 20);
  EXPECT_EQ(memory_stats().bytes_in_use - before, std::size_t{1} << 20);
  cached_free(block);
  EXPECT_EQ(memory_stats().bytes_in_use, before);
}

TEST(Memory, ReleaseReturnsEverythingOfThisThread) {
  std::jthread([] {
    churn({100, 100000, 3 << 20}, 3);
    const std::size_t before = memory_stats().cached_bytes;
    release_cached_memory();
    EXPECT_LE(memory_stats().cached_bytes + (3 << 20), before);
  }).join();
}

TEST(Memory, AnEndedThreadLeavesNothing) {
  const std::size_t before = memory_stats().cached_bytes;
  std::jthread([] { churn({100, 100000, 3 << 20}, 3); }).join();
  EXPECT_EQ(memory_stats().cached_bytes, before);
}

class MemoryLimit : public ::testing::Test {
 protected:
  void TearDown() override { set_memory_cache_limit(std::size_t{1} << 30); }
};

TEST_F(MemoryLimit, IsRespected) {
  release_cached_memory();
  constexpr std::size_t kLimit = 4 << 20;
  set_memory_cache_limit(kLimit);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 20; ++i) {
        churn({1000, 50000, 300000, 700000, 2 << 20, 3 << 20}, 1);
        EXPECT_LE(memory_stats().cached_bytes, kLimit + 4 * (3 << 20));  // Reads are not a cut.
      }
    });
  }
  threads.clear();
  churn({3 << 20, 3 << 20, 3 << 20}, 2);
  EXPECT_LE(memory_stats().cached_bytes, kLimit);
}

TEST_F(MemoryLimit, SizesOfYesterdayMakeRoom) {
  release_cached_memory();
  set_memory_cache_limit(8 << 20);
  churn({7 << 20}, 2);
  churn(std::vector<std::size_t>(10, 600 << 10), 2000);
  const MemoryStats before = memory_stats();
  churn(std::vector<std::size_t>(10, 600 << 10), 10);
  EXPECT_EQ(memory_stats().system_allocations, before.system_allocations);
}

// As a prefetch has it: one thread only allocates, another only frees. What comes back was paid for
// when it was sent, and must not be paid for again with every trip.
TEST_F(MemoryLimit, OfBlocksThatGoToAndFroIsNotUsedUp) {
  release_cached_memory();
  set_memory_cache_limit(8 << 20);
  constexpr int kTrips = 200;
  constexpr std::size_t kBytes = 3 << 19;
  void* block = nullptr;
  std::binary_semaphore made(0), freed(0);
  const uint64_t before = memory_stats().system_allocations;
  std::jthread owner([&] {
    for (int i = 0; i < kTrips; ++i) {
      block = cached_allocate(kBytes);
      made.release();
      freed.acquire();
    }
  });
  for (int i = 0; i < kTrips; ++i) {
    made.acquire();
    cached_free(block);
    freed.release();
  }
  owner.join();
  EXPECT_EQ(memory_stats().system_allocations, before + 1);
}

TEST(MemoryThreads, ABlockFreedElsewhereReturnsToItsOwner) {
  void* block = nullptr;
  std::binary_semaphore made(0), freed(0);
  std::jthread owner([&] {
    block = cached_allocate(300000);
    made.release();
    freed.acquire();
    const uint64_t before = memory_stats().system_allocations;
    void* again = cached_allocate(300000);
    EXPECT_EQ(again, block);
    EXPECT_EQ(memory_stats().system_allocations, before);
    cached_free(again);
  });
  made.acquire();
  cached_free(block);
  freed.release();
}

// What other threads keep is memory as well, also while they do something else, or nothing.
TEST(MemoryThreads, RefusedMemoryIsFoundInAllCaches) {
  if (!testing::kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(testing::status_of_child([] {
              set_memory_cache_limit(std::size_t{1} << 30);
              constexpr std::size_t kBytes = std::size_t{100} << 20;
              std::binary_semaphore filled{0};
              std::binary_semaphore over{0};
              std::jthread idle([&] {
                cached_free(cached_allocate(2 * kBytes));
                filled.release();
                over.acquire();
              });
              std::jthread busy([](const std::stop_token& stop) {
                while (!stop.stop_requested()) churn({100, 3000, 40000}, 10);
              });
              filled.acquire();
              cached_free(cached_allocate(3 * kBytes));
              const bool kept = memory_stats().cached_bytes >= 5 * kBytes;
              testing::limit_address_space(kBytes / 2);
              // No block of this size is kept anywhere.
              void* block = cached_allocate(4 * kBytes + kBytes / 2);
              std::memset(block, 1, kBytes);
              over.release();
              return kept ? 0 : 1;
            }),
            0);
}

TEST(MemoryThreads, RefusedMemoryIsAnErrorWhenTheCachesAreEmpty) {
  if (!testing::kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(testing::status_of_child([] {
              testing::limit_address_space(std::size_t{50} << 20);
              try {
                cached_allocate(std::size_t{200} << 20);
              } catch (const std::bad_alloc& e) {
                const std::string_view text = e.what();
                const bool says = text.find("[memory] expected ") == 0 &&
                                  text.find("use fewer replicas") != std::string_view::npos;
                return says ? 0 : 2;
              }
              return 1;
            }),
            0);
}

TEST(MemoryThreads, OutlivesItsThread) {
  const MemoryStats before = memory_stats();
  void* block = nullptr;
  std::jthread([&] { block = cached_allocate(300000); }).join();
  std::memset(block, 1, 300000);
  cached_free(block);
  EXPECT_EQ(memory_stats().cached_bytes, before.cached_bytes);
  EXPECT_EQ(memory_stats().bytes_in_use, before.bytes_in_use);
}

TEST(MemoryThreads, AForkWhileCachesAreEmptiedLeavesTheChildWithOneThatWorks) {
  if (!testing::kCanLimitChildren) GTEST_SKIP() << "forks beside threads";
  const std::vector<std::size_t> sizes(300, 3000);
  std::jthread empties([](const std::stop_token& stop) {
    while (!stop.stop_requested()) internal::runtime::release_all_cached_memory();
  });
  for (int i = 0; i < 100; ++i) {
    churn(sizes, 1);
    ASSERT_EQ(testing::status_of_child([&] {
                churn(sizes, 3);
                return 0;
              }),
              0)
        << "child " << i;
  }
}

// Threads come and go, pass blocks to each other and free them anywhere.
TEST(MemoryThreads, Stress) {
  const std::size_t in_use = memory_stats().bytes_in_use;
  std::mutex mutex;
  std::deque<std::pair<unsigned char*, std::size_t>> shared;
  auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 3000; ++i) {
      const std::size_t bytes = 1 + random() % (1u << (4 + random() % 15));
      auto* data = static_cast<unsigned char*>(cached_allocate(bytes));
      data[0] = data[bytes - 1] = static_cast<unsigned char>(bytes);
      std::pair<unsigned char*, std::size_t> taken{nullptr, 0};
      {
        std::lock_guard lock(mutex);
        shared.emplace_back(data, bytes);
        if (shared.size() > 64) {
          taken = shared.front();
          shared.pop_front();
        }
      }
      if (taken.first == nullptr) continue;
      ASSERT_EQ(taken.first[0], static_cast<unsigned char>(taken.second));
      ASSERT_EQ(taken.first[taken.second - 1], static_cast<unsigned char>(taken.second));
      cached_free(taken.first);
    }
  };
  for (unsigned generation = 0; generation < 5; ++generation) {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 4; ++t) threads.emplace_back(work, generation * 10 + t);
  }
  for (auto [data, bytes] : shared) cached_free(data);
  EXPECT_EQ(memory_stats().bytes_in_use, in_use);
}

TEST(MemoryPolicies, TensorsComeFromTheCache) {
  if (std::getenv("COHORT_MEMORY") != nullptr) GTEST_SKIP() << "COHORT_MEMORY decides";
  set_memory_policy(MemoryPolicy::kCaching);
  if (kAddressSanitizer) {
    EXPECT_EQ(memory_policy(), MemoryPolicy::kSystem);
    return;
  }
  EXPECT_EQ(memory_policy(), MemoryPolicy::kCaching);
  { Tensor warm = empty({256, 784}); }
  const MemoryStats before = memory_stats();
  Tensor survivor;
  for (int i = 0; i < 10; ++i) {
    Tensor t = empty({256, 784});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data_ptr()) % 64, 0u);
    if (i == 9) survivor = t;
  }
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.allocations - before.allocations, 10u);
  EXPECT_EQ(after.cache_hits - before.cache_hits, 10u);
  EXPECT_EQ(empty({0, 3}).numel(), 0);

  set_memory_policy(MemoryPolicy::kSystem);
  EXPECT_EQ(memory_policy(), MemoryPolicy::kSystem);
  { Tensor other = empty({256, 784}); }
  EXPECT_EQ(memory_stats().allocations, after.allocations);
  survivor.resize_({300, 784});
  survivor.fill_(1);
}

TEST(MemoryPolicies, AnExplicitChoiceIsNotOverruledByAStrategy) {
  if (std::getenv("COHORT_MEMORY") != nullptr) GTEST_SKIP() << "COHORT_MEMORY decides";
  set_memory_policy(MemoryPolicy::kSystem);
  internal::runtime::install_caching_allocator();
  EXPECT_EQ(memory_policy(), MemoryPolicy::kSystem);
}

// Freed by a static destructor, after the main thread's cache is gone.
struct Last {
  void* block = nullptr;
  ~Last() {
    cached_free(block);
    cached_free(cached_allocate(100));
  }
} g_last;

TEST(MemoryThreads, FreeAfterMainIsSafe) { g_last.block = cached_allocate(5000); }

}  // namespace
}  // namespace cohort
