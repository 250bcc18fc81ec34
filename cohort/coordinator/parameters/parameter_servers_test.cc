// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/parameter_servers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <random>
#include <thread>

#include "cohort/coordinator/parameters/generation_fence.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using Numbers = std::vector<float>;

// 0, 1, 2, ... in the shape.
std::function<Tensor(int64_t, int64_t)> counted(const Shape& shape) {
  return [shape](int64_t rows, int64_t first) {
    const int64_t width = shape.size() < 2 ? 1 : shape[1];
    Shape part = shape;
    if (!part.empty()) part[0] = rows;
    return (arange(rows * width).to(kFloat32) + first * width).reshape(part);
  };
}

ParameterHandle make(ParameterServers& servers, const std::string& name, const Shape& shape,
                     int64_t parts = 1) {
  return servers.make_or_bind({.name = name, .shape = shape, .parts = parts}, counted(shape));
}

Numbers numbers(const Tensor& t) { return to_vector<float>(t); }
UpdateStep sgd(double rate) {
  return {.rule = update_rules::SgdStep{rate}, .how = {}, .slots = {}};
}

TEST(ParameterServers, KeepWhatIsWritten) {
  const TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle w = make(*servers, "w", {3, 2});
  EXPECT_EQ(numbers(servers->pull(w)), (Numbers{0, 1, 2, 3, 4, 5}));
  servers->write(w, {}, variables::Write::kAdd, ones({3, 2}));
  EXPECT_EQ(numbers(servers->pull(w)), (Numbers{1, 2, 3, 4, 5, 6}));
  const ParameterHandle n = make(*servers, "n", {});
  EXPECT_EQ(numbers(servers->write(n, {}, variables::Write::kSub, scalar(2))), (Numbers{-2}));
  EXPECT_EQ(test.services[0]->bytes() + test.services[1]->bytes(), 7 * sizeof(float));
}

TEST(ParameterServers, ShardsActAsOne) {
  const TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle t = make(*servers, "t", {5, 2}, 3);
  ASSERT_EQ(t.shards.size(), 3U);
  EXPECT_EQ(t.shards[2].place, (Shard{.server = 0, .first = 4, .rows = 1}));
  EXPECT_EQ(numbers(servers->pull(t)), (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(numbers(servers->pull_range(t, {}, {1, 3})), (Numbers{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(numbers(servers->pull_rows(t, tensor({4, 0, 4, 2}, kInt64))),
            (Numbers{8, 9, 0, 1, 8, 9, 4, 5}));
  servers->scatter(t, variables::Scatter::kUpdate,
                   {.values = tensor({1, 1, 2, 2, 3, 3}).reshape({3, 2}),
                    .indices = tensor({4, 1, 4}, kInt64),
                    .dense_shape = {5, 2}});
  EXPECT_EQ(numbers(servers->pull(t)), (Numbers{0, 1, 2, 2, 4, 5, 6, 7, 3, 3}));
}

// 40 MB in shards of 20, which need several messages each.
TEST(ParameterServers, LargeValuesTravelInSeveralMessages) {
  const TestServers test(1);
  const auto servers = test.connect();
  const Shape shape = {5'000'000, 2};
  const ParameterHandle t = make(*servers, "large", shape, 1);
  const Tensor expected = arange(10'000'000).to(kFloat32).reshape(shape);
  EXPECT_TRUE(servers->pull(t).equal(expected));
  ParameterServers::Push push(*servers);
  push.dense(t, sgd(1), expected);
  push.wait();
  EXPECT_EQ(servers->pull(t).abs().max().item<float>(), 0);
}

TEST(ParameterServers, EachRowTravelsOnce) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle t = make(*servers, "t", {4, 1});
  const Tensor ids = tensor({3, 3, 3, 1}, kInt64);
  EXPECT_EQ(variables::unique_rows(ids).rows, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(numbers(servers->pull_rows(t, ids)), (Numbers{3, 3, 3, 1}));
  EXPECT_EQ(numbers(servers->pull_rows(t, zeros({0}, kInt64))), Numbers{});
}

TEST(ParameterServers, WhoeverComesFirstMakesAVariable) {
  const TestServers test(2);
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto servers = test.connect();
      const auto make_part = [&](int64_t rows, int64_t) {
        ++made;
        return full({rows}, 7);
      };
      const ParameterHandle h = servers->make_or_bind({.name = "one", .shape = {9}}, make_part);
      EXPECT_EQ(numbers(servers->pull(h)), Numbers(9, 7));
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(made, 1);
  const auto servers = test.connect();
  EXPECT_EQ(numbers(servers->pull(servers->bind("one"))), Numbers(9, 7));
  testing::expect_error<FailedPrecondition>({"\"one\"", "[9]", "[8]"},
                                            [&] { make(*servers, "one", {8}); });
  testing::expect_error<InvalidArgument>({"\"two\""}, [&] { servers->bind("two"); });
}

// Pushes of several workers are all applied; a sum of integers loses nothing to rounding.
TEST(ParameterServers, NoUpdateIsLost) {
  const TestServers test(2);
  const auto first = test.connect();
  const ParameterHandle dense = make(*first, "dense", {64, 33});
  const ParameterHandle table = make(*first, "table", {100, 8}, 3);
  const Tensor dense_before = first->pull(dense);
  const Tensor table_before = first->pull(table);
  constexpr int kWorkers = 4;
  constexpr int kSteps = 25;
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&] {
      const auto servers = test.connect();
      const variables::RowSum rows{{0, 33, 34, 99}, full({4, 8}, -1)};
      for (int s = 0; s < kSteps; ++s) {
        ParameterServers::Push push(*servers);
        push.dense(dense, sgd(1), full({64, 33}, -1));
        push.rows(table, sgd(1), rows, /*others_too=*/s % 2 == 0);
        push.wait();
      }
    });
  }
  for (std::thread& each : workers) each.join();
  const float steps = kWorkers * kSteps;
  EXPECT_TRUE(first->pull(dense).equal(dense_before + steps));
  const Tensor grown = first->pull(table) - table_before;
  EXPECT_EQ(grown.sum().item<float>(), 4 * 8 * steps);
  EXPECT_EQ(grown.select(0, 33).min().item<float>(), steps);
}

TEST(ParameterServers, SlotsBelongToTheirOptimizer) {
  const TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle t = make(*servers, "t", {5}, 2);
  servers->make_slots(t, "adam", {0, 0.5});
  servers->make_slots(t, "adam", {0, 0.5});
  EXPECT_EQ(numbers(servers->pull(t, {.slots = "adam", .slot = 1})), Numbers(5, 0.5));
  testing::expect_error<FailedPrecondition>({"\"adam\"", "\"t/part_0\""},
                                            [&] { servers->make_slots(t, "adam", {0}); });
  EXPECT_THROW(servers->pull(t, {.slots = "sgd", .slot = 0}), FailedPrecondition);
  EXPECT_THROW(servers->pull(t, {.slots = "adam", .slot = 2}), InvalidArgument);
  ParameterServers::Push push(*servers);
  push.dense(t, {.rule = update_rules::MomentumStep{}, .how = {}, .slots = "sgd"}, ones({5}));
  EXPECT_THROW(push.wait(), FailedPrecondition);
}

TEST(ParameterServers, ServersThatEndOrBeginAnewAreNamed) {
  TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle a = make(*servers, "a", {2});
  const ParameterHandle b = make(*servers, "b", {2});
  test.services[0]->reset();
  testing::expect_error<FailedPrecondition>({"was restarted", "parameter server 0"},
                                            [&] { servers->pull(a); });
  test.end(1);
  testing::run_with_deadline(std::chrono::seconds(60), [&] {
    testing::expect_error<Unavailable>({"parameter server 1"}, [&] { servers->pull(b); });
  });
}

TEST(ParameterServers, AVariableThatWasNotMadeIsMadeByTheNext) {
  const TestServers test(1);
  const auto servers = test.connect();
  const auto fails = [](int64_t, int64_t) -> Tensor { throw InvalidArgument("no value"); };
  EXPECT_THROW(servers->make_or_bind({.name = "w", .shape = {2}}, fails), InvalidArgument);
  EXPECT_EQ(numbers(servers->pull(make(*servers, "w", {2}))), (Numbers{0, 1}));
}

// Calls that change something, as a process sends them.
class RawClient {
 public:
  explicit RawClient(rpc::RpcClientOptions options) : client_(std::move(options)) {
    const rpc::Payload answer = client_.call("ps.open", message({}));
    PayloadReader data("[test] ", answer);
    const std::string header = data.header();
    number_.client = rpc::MessageReader("[test] ", header).number();
  }
  rpc::Payload next(const rpc::Payload& message) {
    number_.oldest = ++number_.sequence;
    return numbered(number_, message);
  }
  void call(const char* method, const rpc::Payload& message) {
    const auto in_lane = client_.start_in_lane(method, message, {}).call;
    if (!in_lane) {
      const std::vector<std::string> lanes = parameter_lanes();
      EXPECT_FALSE(needs_lane_ && std::count(lanes.begin(), lanes.end(), method) > 0) << method;
      return static_cast<void>(client_.call(method, message));
    }
    in_lane->wait(std::chrono::steady_clock::time_point::max());
    const std::optional<rpc::RpcResult> result = in_lane->take();
    ASSERT_TRUE(result.has_value());
    if (result->error) std::rethrow_exception(result->error);
  }
  void wait_for_lane() {
    needs_lane_ = true;
    testing::run_with_deadline(std::chrono::seconds(30), [&] {
      while (!client_.start_in_lane("ps.pull", message({}), {}).call) std::this_thread::yield();
    });
  }

 private:
  rpc::RpcClient client_;
  CallNumber number_;
  bool needs_lane_ = false;
};

TEST(ParameterServers, AChiefThatWasFollowedIsRefused) {
  const TestServers test(1);
  const auto servers = test.connect();  // as chief 0
  const ParameterHandle h = servers->make_or_bind(
      {.name = "h", .shape = {2}}, [](int64_t rows, int64_t) { return zeros({rows}); });
  RawClient in_lane(test.address(0));
  in_lane.wait_for_lane();
  std::promise<void> told;  // soon: who was answered may still be about to end
  test.services[0]->follow(1, /*is_anew=*/false, [&] { told.set_value(); });
  told.get_future().wait();
  const auto refused = [](const auto& work) {
    testing::expect_error<FailedPrecondition>({"chief 0", "another chief has begun as number 1"},
                                              work);
  };
  refused([&] { servers->write(h, {}, variables::Write::kAdd, ones({2})); });
  refused([&] { servers->pull(h); });
  refused([&] { in_lane.call("ps.pull", message({})); });
  refused([&] {
    std::vector<std::exception_ptr> none;
    servers->settle({}, 7, none);
  });
}

// What began before it is done to its end, and who has come waits for that.
TEST(GenerationFence, WaitsForWhatIsBeingDone) {
  GenerationFence fence;
  std::vector<int> told;
  {
    const GenerationFence::Call old(fence, 1);
    fence.raise(2, [&] { told.push_back(1); });
    fence.raise(2, [&] { told.push_back(2); });
    const GenerationFence::Call call(fence, 2);
    EXPECT_TRUE(told.empty());
    EXPECT_THROW(GenerationFence::Call(fence, 1), FailedPrecondition);
  }
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
  EXPECT_THROW(fence.raise(1, [&] { told.push_back(3); }), FailedPrecondition);
  EXPECT_EQ(told.size(), 2) << "an old one changes nothing";
  EXPECT_THROW(GenerationFence::Call(fence, 1), FailedPrecondition);
}

// What strangers send is an error, whatever it is, and whichever way it comes.
void expect_errors_of_bad_messages(bool in_lanes) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle t = make(*servers, "t", {4, 2}, 1);
  rpc::RpcClientOptions options = test.address(0);
  options.lanes = in_lanes;
  RawClient client(options);
  if (in_lanes) client.wait_for_lane();
  rpc::MessageWriter header;
  header.number(t.shards[0].id);
  write_step(header, sgd(1));
  header.signed_number(0);
  header.signed_number(4);
  header.number(2);
  header.number(1);
  rpc::Payload good = message(header);
  append_rows(good, {1, 3});
  append_bytes(good, ones({2, 2}));
  client.call("ps.push_rows", client.next(good));
  const std::string text = client.next(good).text();
  for (const char* method :
       {"ps.push_rows", "ps.push", "ps.pull", "ps.pull_rows", "ps.write", "ps.scatter", "ps.create",
        "ps.declare", "ps.make_slots", "ps.find", "ps.make_table", "ps.see", "ps.pull_ids",
        "ps.push_ids", "ps.table", "ps.restore_table", "ps.statistics", "ps.push_whole"}) {
    for (std::size_t size = 0; size < text.size(); size += 7) {
      EXPECT_THROW(client.call(method, rpc::Payload(text.substr(0, size))), Error) << method;
    }
  }
  // Bytes that are wrong one by one: nearly all are noticed, none ends the server.
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same every time
  for (int i = 0; i < 300; ++i) {
    std::string damaged = client.next(good).text();
    damaged[random() % (damaged.size() - 16)] = static_cast<char>(random());
    try {
      client.call("ps.push_rows", rpc::Payload(damaged));
    } catch (const Error&) {
    }
  }
  RawClient other(options);
  if (in_lanes) other.wait_for_lane();
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{1, 1}, {3, 1}, {1, 4}, {-1, 2}}) {
    rpc::Payload wrong = message(header);
    append_rows(wrong, rows);
    append_bytes(wrong, ones({2, 2}));
    EXPECT_THROW(other.call("ps.push_rows", other.next(wrong)), InvalidArgument);
  }
  EXPECT_EQ(shape_of(servers->pull(t)), (Shape{4, 2}));
}

TEST(ParameterServers, LongNamesAndShapesOfManyAxesAreRefused) {  // F6
  const TestServers test(1);
  const auto servers = test.connect();
  make(*servers, std::string(4096, 'n'), {2});
  testing::expect_error<InvalidArgument>({"at most 4096 bytes", "4097"},
                                         [&] { make(*servers, std::string(4097, 'n'), {2}); });
  make(*servers, "most", Shape(32, 1));
  testing::expect_error<DataLoss>({"a smaller number"},
                                  [&] { make(*servers, "more", Shape(33, 1)); });
}

TEST(ParameterServers, BadMessagesAreErrors) { expect_errors_of_bad_messages(false); }
TEST(ParameterServers, BadMessagesInLanesAreErrors) { expect_errors_of_bad_messages(true); }

// The same bits, whichever way they travel; from several threads at once, more than have room.
TEST(ParameterServers, LanesChangeNoNumber) {
  const TestServers test(2);
  const auto client_of = [&](bool lanes) {
    std::vector<std::shared_ptr<rpc::RpcClient>> out;
    for (int s = 0; s < 2; ++s) {
      rpc::RpcClientOptions options = test.address(s);
      options.lanes = lanes;
      out.push_back(std::make_shared<rpc::RpcClient>(options));
    }
    return out;
  };
  const auto clients = client_of(true);
  ParameterServers with(clients);
  ParameterServers without(client_of(false));
  const ParameterHandle t = make(with, "t", {90'000, 32}, 2);
  const ParameterHandle same = without.bind("t");
  ASSERT_TRUE(testing::comes_true([&] {
    with.pull_range(t, {}, {44'999, 2});
    return clients[0]->has_lane() && clients[1]->has_lane();
  }));
  EXPECT_TRUE(with.pull(t).equal(without.pull(same)));
  const Tensor ids = tensor({89'999, 3, 45'000, 44'999, 3, 0}, kInt64);
  const Tensor distinct = tensor({89'999, 3, 45'000, 44'999, 0}, kInt64);
  EXPECT_TRUE(with.pull_rows(t, ids).equal(without.pull_rows(same, ids)));
  EXPECT_TRUE(with.pull_rows(t, distinct).equal(with.pull(t).index_select(0, distinct)));
  const Tensor before = without.pull(same);
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step < 3; ++step) {
        ParameterServers::Push push(with);
        push.dense(t, sgd(1), ones({90'000, 32}));
        push.rows(t, sgd(1), {{5, 89'998}, ones({2, 32})}, /*others_too=*/false);
        push.wait();
        EXPECT_EQ(shape_of(with.pull(t)), (Shape{90'000, 32}));
      }
    });
  }
  for (std::thread& each : threads) each.join();
  Tensor expected = before;
  for (int i = 0; i < 3 * kThreads; ++i) expected = expected - 1;
  const Tensor after = without.pull(same);
  expected.select(0, 5).sub_(3 * kThreads);
  expected.select(0, 89'998).sub_(3 * kThreads);
  EXPECT_TRUE(after.equal(expected));
}

// Numbers of rows and of whole variables, of few and of as many as a message has: none of them goes
// over gRPC between processes of one machine.
TEST(ParameterServers, NumbersGoThroughLanes) {
  const TestServers test(1);
  rpc::RpcClientOptions options = test.address(0);
  const auto client = std::make_shared<rpc::RpcClient>(options);
  ParameterServers servers({client});
  const ParameterHandle t = make(servers, "t", {40'000, 32});
  ASSERT_TRUE(testing::comes_true([&] {
    servers.pull_range(t, {}, {0, 1});
    return client->has_lane();
  }));
  const std::vector<std::string> methods = {"ps.pull", "ps.pull_rows", "ps.push", "ps.push_rows"};
  for (const std::string& each : methods) {
    test.calls->over_grpc(each);
    test.calls->in_lanes(each);
  }
  Tensor expected = servers.pull(t);
  for (const int64_t count : {1, 100, 4096, 40'000}) {
    std::vector<int64_t> rows(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = i * (40'000 / count);
    const Tensor ids = from_vector(rows, {count});
    ParameterServers::Push push(servers);
    push.rows(t, sgd(1), {rows, ones({count, 32})}, /*others_too=*/false);
    push.dense(t, sgd(1), ones({40'000, 32}));
    push.wait();
    expected.index_add_(0, ids, full({count, 32}, -1.0));
    expected.sub_(1);
    EXPECT_TRUE(servers.pull_rows(t, ids.flip({0})).equal(expected.index_select(0, ids.flip({0}))));
    EXPECT_TRUE(servers.pull(t).equal(expected)) << count;
  }
  for (const std::string& each : methods) {
    EXPECT_EQ(test.calls->over_grpc(each), 0) << each;
    EXPECT_GE(test.calls->in_lanes(each), 4) << each;
  }
}

TEST(PayloadReader, ReadsNumbersWhereTheyLie) {
  for (const char* name : {"", "a", "adam", "adam_of_17"}) {
    rpc::MessageWriter header;
    header.text(name);
    rpc::Payload payload = message(header);
    append_rows(payload, {4, 7});
    append_bytes(payload, ones({3}));
    const std::string text = payload.text();
    std::vector<double> aligned(text.size() / sizeof(double) + 2);
    auto* const at = reinterpret_cast<std::byte*>(aligned.data());
    for (const std::size_t shift : {0UL, 4UL, 1UL}) {
      std::copy_n(std::as_bytes(std::span(text)).begin(), text.size(), at + shift);
      rpc::Payload whole;
      whole.append({.bytes = {at + shift, text.size()}, .owner = {}});
      PayloadReader in("[test] ", whole);
      in.header();
      EXPECT_EQ(in.in_place<int64_t>(2) != nullptr, shift == 0) << name;
      if (shift != 0) {
        EXPECT_EQ(in.rows(2, 8), (std::vector<int64_t>{4, 7}));
      }
      EXPECT_EQ(in.in_place<float>(4), nullptr) << "there are three";
      const float* const floats = in.in_place<float>(3);
      ASSERT_EQ(floats != nullptr, shift % sizeof(float) == 0) << name;
      if (floats != nullptr) {
        EXPECT_EQ(floats[2], 1);
      }
      in.expect(floats == nullptr ? 3 * sizeof(float) : 0);
      EXPECT_EQ(in.in_place<char>(100), nullptr);
    }
    PayloadReader pieces("[test] ", payload);
    pieces.header();
    EXPECT_EQ(pieces.in_place<char>(2 * sizeof(int64_t) + 1), nullptr) << "of two pieces";
  }
}

TEST(ParameterServers, AServerThatEndsInALaneIsNamed) {
  TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle t = make(*servers, "t", {4, 2}, 2);
  for (int i = 0; i < 100; ++i) servers->pull(t);
  test.end(1);
  testing::run_with_deadline(std::chrono::seconds(30), [&] {
    testing::expect_error<Unavailable>({"parameter server 1"}, [&] { servers->pull(t); });
    EXPECT_EQ(numbers(servers->pull_range(t, {}, {0, 2})), (Numbers{0, 1, 2, 3}));
  });
}

}  // namespace
}  // namespace cohort::internal::coordinator
