// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace cohort::internal::collectives {
namespace {

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// Two ranks of one process.
class SharedBoardTest : public ::testing::Test {
 protected:
  static std::unique_ptr<std::byte, FreeMemory> zeros() {
    const std::size_t bytes = (SharedBoard::bytes(2) + 63) / 64 * 64;
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
    std::fill_n(memory, bytes, std::byte{0});
    return std::unique_ptr<std::byte, FreeMemory>(memory);
  }
  static void post(SharedBoard& board, int peer, uint64_t sequence) {
    Exchange exchange;
    exchange.key.sequence = sequence;
    exchange.parts = {{.peer = peer}};
    board.post(exchange, {SharedBoard::Piece{}});
  }
  static ExchangeKey key_of(uint64_t sequence) {
    ExchangeKey key;
    key.sequence = sequence;
    return key;
  }

  const std::unique_ptr<std::byte, FreeMemory> first_ = zeros();
  const std::unique_ptr<std::byte, FreeMemory> second_ = zeros();
  SharedBoard zero_{0, {first_.get(), second_.get()}};
  SharedBoard one_{1, {first_.get(), second_.get()}};
};

// A rank that finishes late may be waited for by one that has no slot: it has to tell it so.
TEST_F(SharedBoardTest, ARankKnowsThatItsPostIsTheSecondOfASlot) {
  uint64_t next = 0;
  for (; one_.can_post(key_of(next)); ++next) {
    post(zero_, 1, next);
    post(one_, 0, next);
  }
  EXPECT_FALSE(one_.is_slot_used_again(key_of(0)));
  zero_.finish(key_of(0));
  ASSERT_TRUE(one_.can_post(key_of(next)));
  EXPECT_FALSE(zero_.can_post(key_of(next)));  // rank 1 has not finished
  post(one_, 0, next);
  EXPECT_TRUE(one_.is_slot_used_again(key_of(0)));
  EXPECT_FALSE(one_.is_slot_used_again(key_of(1)));
  one_.finish(key_of(0));
  EXPECT_TRUE(zero_.can_post(key_of(next)));
}

}  // namespace
}  // namespace cohort::internal::collectives
