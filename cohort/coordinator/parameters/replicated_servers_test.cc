// SPDX-License-Identifier: Apache-2.0
//
// Parameter servers with copies: who comes back, who is cut off, what has ended, and memory that
// one copy alone has not.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/base/sanitizers.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/parameters/calls.h"
#include "cohort/coordinator/parameters/test_groups.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using std::chrono::milliseconds;
using testing::comes_true;

ParameterHandle make_of(ParameterServers& servers, const std::string& name, const Shape& shape,
                        double value, bool* made = nullptr) {
  return servers.make_or_bind(
      {.name = name, .shape = shape},
      [&](int64_t rows, int64_t /*first*/) {
        Shape part = shape;
        part[0] = rows;
        return full(part, value);
      },
      made);
}

// Adds 1 to some rows of the table after the other, until it is told to end.
struct Pusher {
  static constexpr int64_t kRowsOfPush = 256;
  Pusher(std::shared_ptr<ParameterServers> all, ParameterHandle to)
      : servers(std::move(all)), table(std::move(to)), thread([this] { run(); }) {}
  ~Pusher() {
    ends = true;
    if (thread.joinable()) thread.join();
  }
  void run() {
    const UpdateStep step{.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}};
    const int64_t width = table.shape[1];
    while (!ends) {
      const int64_t first = (pushed % (table.rows() / kRowsOfPush)) * kRowsOfPush;
      std::vector<int64_t> rows(kRowsOfPush);
      for (int64_t i = 0; i < kRowsOfPush; ++i) rows[static_cast<std::size_t>(i)] = first + i;
      ParameterServers::Push push(*servers);
      push.rows(table, step, {rows, full({kRowsOfPush, width}, -1.0)}, /*others_too=*/false);
      push.wait();
      ++pushed;
    }
  }
  std::shared_ptr<ParameterServers> servers;
  ParameterHandle table;
  std::atomic<bool> ends = false;
  std::atomic<int64_t> pushed = 0;
  std::thread thread;
};

// A snapshot of it takes longer than a beat, and than the log's last entries are kept.
rpc::RpcResult answer_of(ReplicatedParameters& group, const replication::Bytes& call) {
  GroupStatus status{};
  uint64_t hint = 0;
  return read_group_answer(rpc::Payload(group.apply(call)), status, hint);
}
bool is_resumed_by(ReplicatedParameters& group, uint64_t session, uint64_t origin) {
  rpc::MessageWriter out;
  out.number(session);
  out.number(origin);
  const rpc::RpcResult said = answer_of(group, group_call(1, "ps.begin", rpc::Payload(out.str())));
  EXPECT_FALSE(said.error);
  const std::string text = said.payload.text();
  return rpc::MessageReader("[test] ", text).number_up_to(1) == 1;
}

// What it was told in between says nothing of what it has.
TEST(ReplicatedParameters, GoOnWithTheSessionInWhichTheyBegan) {
  ReplicatedParameters group;
  EXPECT_FALSE(is_resumed_by(group, 1, 0));
  EXPECT_TRUE(is_resumed_by(group, 2, 1));
  EXPECT_TRUE(is_resumed_by(group, 2, 1)) << "told twice";
  EXPECT_TRUE(is_resumed_by(group, 3, 1));
  ReplicatedParameters empty;
  EXPECT_FALSE(is_resumed_by(empty, 3, 1));
  EXPECT_FALSE(is_resumed_by(empty, 4, 1));
  ReplicatedParameters copy;
  const auto snapshot = group.snapshot();
  copy.restore({replication::Bytes(snapshot->bytes(0, snapshot->size()))});
  EXPECT_TRUE(is_resumed_by(copy, 4, 1));
  EXPECT_FALSE(is_resumed_by(copy, 4, 0)) << "another group has not kept its own";
  EXPECT_FALSE(is_resumed_by(copy, 5, 1));
}

// On every copy, and on who gets a snapshot.
TEST(ReplicatedParameters, AChiefThatWasFollowedIsRefused) {
  ReplicatedParameters group;
  rpc::MessageWriter begin;
  begin.number(1);
  begin.number(0);
  EXPECT_FALSE(answer_of(group, group_call(7, "ps.begin", rpc::Payload(begin.str()))).error);
  ReplicatedParameters copy;
  const auto snapshot = group.snapshot();
  copy.restore({replication::Bytes(snapshot->bytes(0, snapshot->size()))});
  rpc::MessageWriter name;
  name.text("table");
  name.number(1);
  for (ReplicatedParameters* each : {&group, &copy}) {
    EXPECT_FALSE(answer_of(*each, group_call(7, "ps.forget", message(name))).error);
    for (const char* method : {"ps.forget", "ps.begin"}) {
      const auto refused = answer_of(*each, group_call(6, method, message(name)));
      ASSERT_TRUE(refused.error) << method;
      testing::expect_error<FailedPrecondition>({"chief 6", "another chief has begun as number 7"},
                                                [&] { std::rethrow_exception(refused.error); });
    }
  }
}

// Half of an update, and the server that has it dies.
TEST(ReplicatedParameterServers, KeepPushesThatWaitForOthers) {
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  TestGroups groups(store.address(), 1, milliseconds(1000));
  const auto servers = groups.connect();
  servers->begin(1);
  const ParameterHandle w = make_of(*servers, "w", {4, 2}, 0);
  servers->make_slots(w, "descent", {});
  const UpdateStep step{.rule = update_rules::SgdStep{1}, .how = {}, .slots = "descent"};
  const auto push = [&](double gradient) {
    ParameterServers::Push one(*servers);
    const Tensor whole = full({4, 2}, gradient);
    one.accumulate(w, step, {.needed = 2}, whole);
    one.wait();
  };
  push(1);
  EXPECT_TRUE(servers->pull(w).equal(zeros({4, 2})));
  groups.stop(w.shards[0].place.server);
  push(3);
  EXPECT_TRUE(servers->pull(w).equal(full({4, 2}, -2)));
}

// Counts what goes over gRPC.
class Counting final : public rpc::RpcClient {
 public:
  using rpc::RpcClient::RpcClient;
  void start(const std::string& method, rpc::Payload request, rpc::RpcCallOptions options,
             std::function<void(rpc::RpcResult)> done) override {
    ++calls;
    rpc::RpcClient::start(method, std::move(request), options, std::move(done));
  }
  std::atomic<int> calls = 0;
};

// Numbers of all sizes, of several pushes at once, on both copies; a part of them is larger than
// what has room in a lane.
TEST(ReplicatedParameterServers, GetCallsThroughLanes) {
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  TestGroups groups(store.address(), 1, milliseconds(2000));
  std::vector<std::shared_ptr<Counting>> clients;
  for (const rpc::RpcClientOptions& each : groups.addresses()) {
    clients.push_back(std::make_shared<Counting>(each));
  }
  const auto servers = groups.connect({clients.begin(), clients.end()});
  servers->begin(1);
  // Two of its numbers: bytes that a small place has, a large one, and several messages.
  std::vector<ParameterHandle> all;
  for (const int64_t size : {2, 1 << 12, 1 << 16, 1 << 20, 3 << 20}) {
    all.push_back(make_of(*servers, "w" + std::to_string(size), {size}, 0));
  }
  // One of the client's, and the other server's.
  ASSERT_TRUE(comes_true([&] {
    servers->pull(all[0]);
    servers->pull(all[1]);
    return clients[0]->has_lane() && clients[1]->has_lane() && groups.lanes(0) == 2 &&
           groups.lanes(1) == 2;
  }));
  const UpdateStep step{.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}};
  int steps = 0;
  // Whether nothing went over gRPC: where a thread gets no processor, a lane is full for a moment.
  const auto goes_through_lanes = [&] {
    const int before = clients[0]->calls + clients[1]->calls;
    groups.calls().over_grpc("ps.member");
    groups.calls().in_lanes("ps.member");
    ++steps;
    for (const ParameterHandle& each : all) {
      ParameterServers::Push push(*servers);
      push.dense(each, step, full(each.shape, -1));
      push.wait();
      EXPECT_TRUE(servers->pull(each).equal(full(each.shape, steps))) << each.name;
    }
    // One for each message of a push, to the other server, and an acknowledgement.
    const int at_least = 2 * static_cast<int>(all.size());
    return clients[0]->calls + clients[1]->calls == before &&
           groups.calls().over_grpc("ps.member") == 0 &&
           groups.calls().in_lanes("ps.member") >= at_least;
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(comes_true(goes_through_lanes));
  groups.stop(all[0].shards[0].place.server);
  for (const ParameterHandle& each : all) {
    EXPECT_TRUE(servers->pull(each).equal(full(each.shape, steps))) << each.name;
  }
}

TEST(ReplicatedParameterServers, TakeBackALargeStateWhileUpdatesGoOn) {
  constexpr int64_t kRows = COHORT_UNDER_SANITIZER != 0 ? 1 << 13 : 1 << 17;
  constexpr int64_t kWidth = 128;
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  TestGroups groups(store.address(), 1, milliseconds(5000));
  const auto servers = groups.connect();
  servers->begin(1);
  const ParameterHandle table = make_of(*servers, "table", {kRows, kWidth}, 0);
  Pusher pusher(groups.connect(), table);
  const int first = table.shards[0].place.server;
  groups.stop(1 - first);
  ASSERT_TRUE(comes_true([&] { return !groups.is_whole(first); }));
  const int64_t before = pusher.pushed;
  ASSERT_TRUE(comes_true([&] { return pusher.pushed > before + 5; })) << "one works alone";
  groups.start(1 - first);
  ASSERT_TRUE(comes_true([&] { return groups.is_whole(first); })) << "it has not come back";
  const int64_t whole = pusher.pushed;
  ASSERT_TRUE(comes_true([&] { return pusher.pushed > whole + 5; })) << "both go on";
  pusher.ends = true;
  pusher.thread.join();
  groups.stop(first);  // who has come back leads now, and has it all
  const Tensor value = servers->pull(table).select(1, 0);
  const int64_t windows = kRows / Pusher::kRowsOfPush;
  const int64_t pushed = pusher.pushed;
  for (int64_t w = 0; w < windows; ++w) {
    const int64_t times = pushed / windows + (w < pushed % windows ? 1 : 0);
    const Tensor window = value.narrow(0, w * Pusher::kRowsOfPush, Pusher::kRowsOfPush);
    ASSERT_EQ(window.min().item<double>(), static_cast<double>(times)) << "window " << w;
    ASSERT_EQ(window.max().item<double>(), static_cast<double>(times)) << "window " << w;
  }
}

// Its servers begin in a store that has the groups of a job before it.
TEST(ReplicatedParameterServers, OfTwoJobsDoNotMeetInOneStore) {
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  for (const uint64_t job : {1, 2}) {
    TestGroups groups(store.address(), job, milliseconds(500));
    EXPECT_TRUE(comes_true([&] { return groups.is_whole(); })) << job;
  }
}

TEST(ReplicatedParameterServers, MayTakeSeveralLeasesForACall) {
  EXPECT_EQ(group_timeout(milliseconds(1000)), std::chrono::minutes(1));
  EXPECT_GE(group_timeout(std::chrono::seconds(20)), std::chrono::seconds(120));
  EXPECT_GE(group_timeout(std::chrono::minutes(1)), std::chrono::minutes(6));
}

// A group's member that answers as it is told.
struct FakeMember {
  explicit FakeMember(GroupStatus status)
      : server({},
               {{"ps.group", [status, this](const rpc::RpcRequest&, const rpc::RpcReply& reply) {
                   ++asked;
                   reply.send(group_answer(status));
                 }}}) {}
  std::atomic<int> asked = 0;
  rpc::RpcServer server;
};

// A primary that is cut off from the others does not know that it has been replaced.
TEST(ReplicatedParameterServers, AreAskedElsewhereWhenOneNeverAnswers) {
  FakeMember cut_off(GroupStatus::kAgain);
  FakeMember leads(GroupStatus::kDone);
  std::vector<std::shared_ptr<rpc::RpcClient>> members;
  for (const FakeMember* each : {&cut_off, &leads}) {
    members.push_back(
        std::make_shared<rpc::RpcClient>(rpc::RpcClientOptions{.address = each->server.address()}));
  }
  GroupClient client({.tasks = 2,
                      .members = members,
                      .first = {.address = cut_off.server.address()},
                      .one_try = std::chrono::seconds(30)});
  Calls calls(std::chrono::seconds(30));
  calls.start(client, "ps.pull", message({}));
  EXPECT_NO_THROW(calls.wait());
  EXPECT_GT(cut_off.asked, 1);
  EXPECT_EQ(leads.asked, 1);
}

// A call whose time is over is not sent once more, which would forget what it has heard.
TEST(ReplicatedParameterServers, AreNamedWhereNobodyLeadsThem) {
  FakeMember one(GroupStatus::kAgain);
  FakeMember other(GroupStatus::kAgain);
  std::vector<std::shared_ptr<rpc::RpcClient>> servers;
  std::vector<rpc::RpcClientOptions> options;
  for (const FakeMember* each : {&one, &other}) {
    options.push_back({.address = each->server.address()});
    servers.push_back(std::make_shared<rpc::RpcClient>(options.back()));
  }
  const auto groups = group_clients(servers, options, 2);
  Calls calls(milliseconds(300));
  calls.start(*groups[0], "ps.pull", message({}));
  const std::string text = testing::error_text<Unavailable>([&] { calls.wait(); });
  const std::string names =
      str_cat("ps 0 (", one.server.address(), "), ps 1 (", other.server.address(), ")");
  EXPECT_NE(text.find(names), std::string::npos) << text;
  EXPECT_EQ(text.find("no server has answered"), std::string::npos) << text;
}

void have_no_memory(const char* place) {
  if (std::string(place) == "ps.apply") throw std::bad_alloc();
}

// What another copy has done is not to become an error on this one.
TEST(ReplicatedParameterServers, DoNotMakeAResultOfTheirOwnLackOfMemory) {
  ReplicatedParameters state;
  rpc::MessageWriter name;
  name.text("none");
  name.number(1);
  const replication::Bytes call = group_call(1, "ps.forget", message(name));
  EXPECT_NO_THROW(state.apply(call));
  base::g_failpoint_hook = &have_no_memory;
  EXPECT_THROW(state.apply(call), std::bad_alloc);
  base::g_failpoint_hook = nullptr;
#if COHORT_ADDRESS_SANITIZER
  GTEST_SKIP() << "AddressSanitizer ends the process where the system refuses memory";
#endif
  rpc::MessageWriter create;
  create.text("huge");
  create.number(1);
  create.number(wire_dtype(kFloat32));
  write_shape(create, {int64_t{1} << 44});
  create.number(0);
  EXPECT_ANY_THROW(state.check_room("ps.create", message(create)));
}

// A large call stays where it has arrived, however it was cut; a small one would keep there more
// than itself.
TEST(ReplicatedParameterServers, ApplyALargeCallFromWhereItLies) {
  const Tensor numbers = arange(30'000).to(kFloat32).sqrt().contiguous();
  const auto create_of = [&](const Tensor& value) {
    rpc::MessageWriter create;
    create.text("w");
    create.number(1);
    create.number(wire_dtype(kFloat32));
    write_shape(create, {value.numel()});
    create.number(1);
    rpc::Payload out = message(create);
    append_bytes(out, value);
    return out;
  };
  const auto lies_in = [](const replication::Bytes& call, const Tensor& value) {
    const auto* const first = static_cast<const std::byte*>(value.const_data_ptr());
    const replication::Bytes::Piece last = call.pieces().back();
    return last.data() >= first && last.data() < first + value.nbytes();
  };
  const replication::Bytes call = group_call(1, "ps.create", create_of(numbers));
  EXPECT_TRUE(lies_in(call, numbers));
  const Tensor few = ones({4});
  EXPECT_FALSE(lies_in(group_call(1, "ps.create", create_of(few)), few));

  const auto text = std::make_shared<const std::string>(call.str());
  std::vector<replication::Bytes::Piece> pieces;
  for (std::size_t at = 0; at < text->size(); at += 5) {
    pieces.push_back(
        std::as_bytes(std::span(*text)).subspan(at, std::min<std::size_t>(5, text->size() - at)));
  }
  const auto snapshot_of = [](const replication::Bytes& update) {
    ReplicatedParameters state;
    state.apply(update);
    const auto snapshot = state.snapshot();
    return snapshot->bytes(0, snapshot->size());
  };
  const std::string whole = snapshot_of(call);
  EXPECT_GT(whole.size(), numbers.nbytes());
  EXPECT_TRUE(snapshot_of({pieces, text}) == whole);
}

TEST(ReplicatedParameterServers, AreRestoredToTheBitFromPieces) {
  ReplicatedParameters state;
  rpc::MessageWriter create;
  create.text("w");
  create.number(1);
  create.number(wire_dtype(kFloat32));
  write_shape(create, {1000, 3});
  create.number(1);
  rpc::Payload made = message(create);
  append_bytes(made, arange(3000).to(kFloat32).sqrt().contiguous());
  state.apply(group_call(1, "ps.create", made));
  const auto before = state.snapshot();
  const auto all = [](const replication::StateSnapshot& snapshot) {
    return snapshot.bytes(0, snapshot.size());
  };
  const std::string bytes = all(*before);
  std::vector<replication::Bytes> pieces;
  for (uint64_t at = 0; at < bytes.size(); at += 777) {
    pieces.push_back(before->bytes(at, std::min<uint64_t>(777, bytes.size() - at)));
  }
  ReplicatedParameters other;
  other.restore(pieces);
  EXPECT_EQ(all(*other.snapshot()), bytes);
  // A change goes by what the snapshot has.
  rpc::MessageWriter write;
  write.number(1);
  write.text("");
  write.number(0);
  write.number(static_cast<uint64_t>(variables::Write::kAssign));
  write.signed_number(0);
  write.signed_number(1);
  rpc::Payload one = message(write);
  append_bytes(one, ones({1, 3}));
  state.apply(group_call(1, "ps.write", one));
  EXPECT_NE(all(*state.snapshot()), bytes);
  EXPECT_EQ(all(*before), bytes);
}

// Of these calls nothing arrives.
class Losing final : public rpc::RpcClient {
 public:
  Losing(rpc::RpcClientOptions options, std::string lost)
      : rpc::RpcClient(std::move(options)), lost_(std::move(lost)) {}
  void start(const std::string& method, rpc::Payload request, rpc::RpcCallOptions options,
             std::function<void(rpc::RpcResult)> done) override {
    if (method != lost_) return rpc::RpcClient::start(method, std::move(request), options, done);
    done({.error = std::make_exception_ptr(DeadlineExceeded("[ps] lost"))});
  }

 private:
  const std::string lost_;
};

class EndedNames : public ::testing::TestWithParam<const char*> {};

// As when the group's primary dies with the message.
TEST_P(EndedNames, DoNotMeetOldValues) {
  const TestServers test(1);
  const auto losing =
      std::make_shared<ParameterServers>(std::vector<std::shared_ptr<rpc::RpcClient>>{
          std::make_shared<Losing>(test.address(0), GetParam())});
  const auto other = test.connect();
  const ParameterHandle before = make_of(*losing, "v", {2}, 1);
  losing->make_slots(before, "adam", {0});
  losing->write(before, {.slots = "adam", .slot = 0}, variables::Write::kAssign, full({2}, 7.0));
  losing->drop_slots(before, "adam");
  losing->make_slots(before, "adam", {0});
  EXPECT_EQ(losing->pull(before, {.slots = "adam", .slot = 0}).max().item<double>(), 0);
  losing->drop(before);
  bool made = false;
  const ParameterHandle after = make_of(*losing, "v", {2}, 2, &made);
  EXPECT_TRUE(made);
  EXPECT_EQ(losing->pull(after).max().item<double>(), 2);
  EXPECT_EQ(other->pull(other->bind("v")).max().item<double>(), 2);
}

INSTANTIATE_TEST_SUITE_P(Lost, EndedNames,
                         ::testing::Values("ps.forget", "ps.drop", "ps.drop_slots"));

}  // namespace
}  // namespace cohort::internal::coordinator
