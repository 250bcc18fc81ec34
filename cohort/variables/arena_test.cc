// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/arena_chain.h"

#include <ATen/ops/count_nonzero.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "cohort/base/error.h"
#include "cohort/testing/child.h"

namespace cohort::internal::variables {
namespace {

using testing::kCanLimitChildren;
using testing::status_of_child;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

ArenaChain chain_of(int replicas) {
  return {
      {.replicas = std::vector<Device>(static_cast<std::size_t>(replicas), runtime::host_device())},
      kFloat32};
}

TEST(ArenaChain, NeighboursTouch) {
  ArenaChain chain = chain_of(2);
  std::vector<std::shared_ptr<ArenaRange>> ranges;
  for (const int64_t numel : {100, 1, 4096, 17}) ranges.push_back(chain.place(numel));
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_EQ(ranges[i]->arena, ranges[0]->arena);
    EXPECT_EQ(ranges[i]->offset,
              ranges[i - 1]->offset + ranges[i]->arena->padded(ranges[i - 1]->numel));
  }
}

TEST(ArenaChain, GoesOnInALargerArena) {
  ArenaChain chain = chain_of(1);
  const int64_t quarter = 64 * kMegabyte / sizeof(float);
  std::vector<std::shared_ptr<ArenaRange>> ranges;
  for (int i = 0; i < 20; ++i) ranges.push_back(chain.place(quarter));
  std::vector<Arena*> arenas;
  std::size_t before = 0;
  for (const auto& range : ranges) {
    if (!arenas.empty() && arenas.back() == range->arena.get()) continue;
    arenas.push_back(range->arena.get());
    EXPECT_GE(range->arena->region_bytes(), before) << "as large as all before it";
    before += range->arena->region_bytes();
  }
  EXPECT_GT(arenas.size(), 1u) << "not all address space at once";
  EXPECT_LE(arenas.size(), 4u);
  // Nothing has moved, and what went is used again.
  const int64_t offset = ranges[1]->offset;
  Arena* const arena = ranges[1]->arena.get();
  ranges[1].reset();
  const auto again = chain.place(quarter);
  EXPECT_EQ(again->arena.get(), arena);
  EXPECT_EQ(again->offset, offset);
}

TEST(ArenaChain, AVariableLargerThanEveryArenaHasOneOfItsOwn) {
  ArenaChain chain = chain_of(1);
  const auto small = chain.place(10);
  const auto large = chain.place(1024 * kMegabyte / sizeof(float));
  EXPECT_NE(large->arena, small->arena);
  EXPECT_EQ(large->offset, 0);
  EXPECT_EQ(chain.place(10)->arena, small->arena);
}

TEST(ArenaChain, ModelsThatComeAndGoTakeNoMoreAddressSpace) {
  ArenaChain chain = chain_of(1);
  const auto build = [&] {
    std::vector<std::shared_ptr<ArenaRange>> model;
    for (int i = 0; i < 10; ++i) model.push_back(chain.place(100 * kMegabyte / sizeof(float)));
  };
  build();
  const std::size_t before = testing::address_space();
  for (int i = 0; i < 50; ++i) build();
  EXPECT_LE(testing::address_space(), before + 600 * kMegabyte);
}

// Parameters and gradients of all replicas together, or there is no training.
TEST(ArenaChain, KeepsToTheAddressSpaceThatIsLeft) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  for (const int replicas : {1, 2, 8}) {
    EXPECT_EQ(status_of_child([&] {
                testing::limit_address_space(400 * kMegabyte);
                const std::size_t before = testing::address_space();
                ArenaChain chain = chain_of(replicas);
                std::vector<std::shared_ptr<ArenaRange>> ranges;
                for (int i = 0; i < 10; ++i) {
                  ranges.push_back(chain.place(kMegabyte / sizeof(float)));
                  for (int r = 0; r < replicas; ++r) {
                    ranges.back()->arena->acquire_buffer(r, 1)->leases = 0;
                  }
                }
                return testing::address_space() - before < 250 * kMegabyte ? 0 : 1;
              }),
              0)
        << replicas << " replicas";
  }
}

// The system refuses to take such memory back (after mlockall that is all of it).
TEST(ArenaChain, LockedMemoryComesBackAsZeros) {
  constexpr int64_t kNumel = 1 << 14;
  constexpr std::size_t kBytes = kNumel * sizeof(float);
  ArenaChain chain = chain_of(1);
  const auto before = chain.place(10);  // so that the next place begins inside a page
  auto range = chain.place(kNumel);
  void* const data = range->arena->parameter_data(0, range->offset);
  if (::mlock(data, kBytes) != 0) GTEST_SKIP() << "needs memory that may be locked";
  range->arena->parameter_view(0, range, {kNumel}).fill_(3);
  range.reset();
  range = chain.place(kNumel);
  const Tensor again = range->arena->parameter_view(0, range, {kNumel});
  EXPECT_EQ(again.data_ptr(), data);
  EXPECT_EQ(again.count_nonzero().item<int64_t>(), 0);
  ::munlock(data, kBytes);
}

TEST(ArenaChain, SaysWhatItCouldNotReserve) {
  if (!kCanLimitChildren) GTEST_SKIP() << "needs a limit of the address space";
  EXPECT_EQ(status_of_child([] {
              testing::limit_address_space(100 * kMegabyte);
              ArenaChain chain = chain_of(2);
              try {
                chain.place(90 * kMegabyte / sizeof(float));
              } catch (const Error& e) {
                const bool small_ones_fit = chain.place(1000) != nullptr;
                return e.code() == ErrorCode::kResourceExhausted && small_ones_fit ? 0 : 1;
              }
              return 2;
            }),
            0);
}

}  // namespace
}  // namespace cohort::internal::variables
