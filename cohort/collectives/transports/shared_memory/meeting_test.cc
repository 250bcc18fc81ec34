// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/meeting.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace cohort::internal::collectives {
namespace {

// Two ranks of one process.
class SharedMeetingTest : public ::testing::Test {
 protected:
  SharedMeetingTest() {
    const std::array<InboxOffer, 2> offers = {zero_inbox_.offer(), one_inbox_.offer()};
    std::string why;
    zero_inbox_.open(offers, &why);
    one_inbox_.open(offers, &why);
    EXPECT_TRUE(zero_inbox_.has_opened(1) && one_inbox_.has_opened(0)) << why;
    zero_ = std::make_unique<SharedMeeting>(zero_inbox_, 0, 2);
    one_ = std::make_unique<SharedMeeting>(one_inbox_, 1, 2);
  }
  // Whether rank 1 has to tell rank 0 when it has read what this shows it.
  bool is_awaited(Exchange::Delivery delivery) {
    constexpr std::size_t kBytes = SharedBoard::kInlineBytes + 64;
    const std::shared_ptr<std::byte> memory = zero_->allocate(kBytes);
    Exchange exchange{.delivery = delivery, .key = {.sequence = sequence_++}};
    exchange.parts = {{.peer = 1, .to_peer = {memory.get(), kBytes}}};
    EXPECT_TRUE(zero_->start(exchange).empty());
    const SharedBoard board(1, {one_inbox_.board_of(0), one_inbox_.board_of(1)});
    EXPECT_EQ(board.piece(0, exchange.key).bytes, kBytes);
    EXPECT_EQ(zero_->lends(exchange.key), board.piece(0, exchange.key).is_awaited != 0);
    return board.piece(0, exchange.key).is_awaited != 0;
  }

  SharedInbox zero_inbox_{0, 2};
  SharedInbox one_inbox_{1, 2};
  std::unique_ptr<SharedMeeting> zero_;
  std::unique_ptr<SharedMeeting> one_;
  uint64_t sequence_ = 0;
};

// What is lent by the ranks' own rules nobody waits for: no reader has to wake its owner.
TEST_F(SharedMeetingTest, AReaderTellsOnlyWhoWaitsForIt) {
  using Delivery = Exchange::Delivery;
  EXPECT_FALSE(is_awaited(Delivery::kLend));
  EXPECT_TRUE(is_awaited(Delivery::kLook));
  EXPECT_TRUE(is_awaited(Delivery::kMove));
}

}  // namespace
}  // namespace cohort::internal::collectives
