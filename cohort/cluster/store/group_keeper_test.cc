// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/group_keeper.h"
#include "cohort/base/error.h"
#include "cohort/cluster/store/group_messages.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::cluster {
namespace {

using namespace replication;  // NOLINT(google-build-using-namespace): its messages, by their names

class GroupKeeperTest : public ::testing::Test {
 protected:
  Configuration beat(NodeId from) {
    const auto answers =
        decode_group_answer(keeper_.ask(encode_group_question({.group = "g",
                                                               .lease = std::chrono::seconds(1),
                                                               .from = from,
                                                               .message = Heartbeat{now_}})));
    EXPECT_FALSE(answers.empty());
    return answers.empty() ? Configuration{}
                           : std::get<HeartbeatAnswer>(answers.front()).configuration;
  }
  Time now_ = std::chrono::seconds(100);
  GroupKeeper keeper_{[this] { return now_; }};
};

TEST_F(GroupKeeperTest, PromotesTheBackupWhenTheLeaseIsOver) {
  EXPECT_EQ(beat(1).primary, 1U);
  keeper_.ask(
      encode_group_question({.group = "g",
                             .lease = std::chrono::seconds(1),
                             .from = 1,
                             .message = Proposal{{.epoch = 2, .primary = 1, .backups = {2}}}}));
  now_ += std::chrono::milliseconds(900);
  EXPECT_EQ(beat(2).primary, 1U);
  now_ += std::chrono::milliseconds(200);
  beat(2);
  const Configuration after = beat(2);
  EXPECT_EQ(after.primary, 2U);
  EXPECT_EQ(after.epoch, 3U);
  EXPECT_EQ(beat(1).primary, 2U);  // who comes late hears of it
}

TEST_F(GroupKeeperTest, RefusesAnotherLease) {
  beat(1);
  testing::expect_error<FailedPrecondition>({"1000 ms", "2000 ms"}, [&] {
    keeper_.ask(encode_group_question(
        {.group = "g", .lease = std::chrono::seconds(2), .from = 2, .message = Heartbeat{now_}}));
  });
}

TEST_F(GroupKeeperTest, RefusesBytesThatAreNone) {
  EXPECT_THROW(keeper_.ask("none"), DataLoss);
  const std::string whole = encode_group_message(Append{.epoch = 3, .entries = {{.epoch = 2}}});
  EXPECT_THROW(decode_group_message(whole.substr(0, whole.size() - 1)), DataLoss);
  EXPECT_THROW(decode_group_message(whole + "x"), DataLoss);
}

TEST(GroupMessages, ComeBackAsTheyWere) {
  SnapshotPiece snapshot{.epoch = 4,
                         .number = 2,
                         .index = 7,
                         .index_epoch = 3,
                         .place = 5,
                         .count = 9,
                         .bytes = std::string(100'000, 'x')};
  snapshot.applied.clients[5] = {.oldest = 2, .results = {{2, "two"}, {3, ""}}};
  const Append append{
      .epoch = 4,
      .previous = 6,
      .previous_epoch = 3,
      .entries =
          {{.epoch = 3,
            .command = {.client = 9, .sequence = 8, .oldest = 7, .bytes = std::string("a\0b", 3)}}},
      .committed = 5};
  const auto again = std::get<Append>(decode_group_message(encode_group_message(append)));
  ASSERT_EQ(again.entries.size(), 1U);
  EXPECT_EQ(again.entries[0].command.bytes.str(), append.entries[0].command.bytes.str());
  EXPECT_EQ(again.entries[0].command.oldest, 7U);
  EXPECT_EQ(again.committed, 5U);
  const auto back = std::get<SnapshotPiece>(decode_group_payload(encode_group_payload(snapshot)));
  EXPECT_EQ(back.bytes.str(), snapshot.bytes.str());
  EXPECT_EQ(back.place, 5U);
  EXPECT_EQ(back.count, 9U);
  EXPECT_EQ(back.applied.clients.at(5).oldest, 2U);
  EXPECT_EQ(back.applied.clients.at(5).results.at(2), "two");
  EXPECT_EQ(back.applied.clients.at(5).results.size(), 2U);
}

// What is large stays where it has arrived, in pieces of any size; what nobody owns is copied.
TEST(GroupMessages, LargeBytesStayWhereTheyAre) {
  std::string text(200'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 / 5);
  const SnapshotPiece sent{.epoch = 4, .bytes = text};
  const auto arrived = std::make_shared<const std::string>(encode_group_message(sent));
  const auto bytes_of = [&](bool is_owned) {
    rpc::Payload payload;
    const auto all = std::as_bytes(std::span(*arrived));
    for (std::size_t at = 0; at < all.size(); at += 16'001) {
      payload.append({.bytes = all.subspan(at, std::min<std::size_t>(16'001, all.size() - at)),
                      .owner = is_owned ? arrived : nullptr});
    }
    return std::get<SnapshotPiece>(decode_group_payload(payload)).bytes;
  };
  const auto lies_there = [&](const Bytes& bytes) {
    const auto* const first = reinterpret_cast<const std::byte*>(arrived->data());
    const std::byte* const at = bytes.pieces()[0].data();
    return at >= first && at < first + arrived->size();
  };
  const Bytes shared = bytes_of(true);
  EXPECT_TRUE(lies_there(shared));
  EXPECT_EQ(shared.size(), text.size());
  EXPECT_TRUE(shared.str() == text);
  EXPECT_TRUE(shared.owner() != nullptr);
  const Bytes copied = bytes_of(false);
  EXPECT_FALSE(lies_there(copied));
  EXPECT_TRUE(copied.str() == text);
  const Append again{.entries = {{.command = {.bytes = shared}}}};
  const auto back = std::get<Append>(decode_group_payload(encode_group_payload(again)));
  EXPECT_TRUE(back.entries.at(0).command.bytes.str() == text);
}

}  // namespace
}  // namespace cohort::internal::cluster
