// SPDX-License-Identifier: Apache-2.0
//
// Calls for tables whose ids and rows are on parameter servers: told twice, damaged, and refused.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cohort/autograd/embedding.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/parameters/test_tables.h"
#include "cohort/coordinator/partitioners.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using testing::expect_error;

uint64_t client_number(rpc::RpcClient& client) {
  const rpc::Payload opened = client.call("ps.open", message({}));
  PayloadReader data("[test] ", opened);
  const std::string text = data.header();
  return rpc::MessageReader("[test] ", text).number();
}

// Its answer was lost, and it comes again.
TEST(RemoteTable, ALookupThatIsToldTwiceCountsOnce) {
  const TestServers test(1);
  Trainer there(test.coordinator(), 8, {.admit_after = 3}, testing::row_methods()[0]);
  const ParameterHandle rows = test.connect()->bind("rows");
  rpc::RpcClient client(test.address(0));
  CallNumber number{.client = client_number(client), .sequence = 1, .oldest = 1};
  rpc::MessageWriter header;
  header.number(rows.shards[0].id);
  header.number(1);
  header.number(1);
  rpc::Payload see = message(header);
  append_rows(see, {7});
  append_rows(see, {2});
  for (int i = 0; i < 5; ++i) client.call("ps.see", numbered(number, see));
  EXPECT_EQ(there.table().candidates(), 1);
  EXPECT_EQ(there.table().size(), 0) << "seen twice, and not ten times";
  ++number.sequence;
  client.call("ps.see", numbered(number, see));
  EXPECT_EQ(there.table().ids(), Ids{7});
}

// Nearly all are noticed, and none ends the server.
TEST(RemoteTable, DamagedMessagesAreErrors) {
  const TestServers test(1);
  Trainer there(test.coordinator(), 8, {}, testing::row_methods()[0]);
  const ParameterHandle rows = test.connect()->bind("rows");
  rpc::RpcClient client(test.address(0));
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same every time
  const auto header_of = [&](const std::function<void(rpc::MessageWriter&)>& rest) {
    rpc::MessageWriter header;
    header.number(rows.shards[0].id);
    rest(header);
    return message(header);
  };
  rpc::Payload see = header_of([](auto& out) {
    out.number(2);
    out.number(1);
  });
  append_rows(see, {7, 8, 1, 2});
  rpc::Payload push = header_of([](auto& out) {
    write_step(out, {.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}});
    out.number(2);
    out.number(0);
  });
  append_rows(push, {7, 8});
  append_bytes(push, ones({2, kWidth}));
  rpc::Payload restore = header_of([](auto& out) {
    for (const uint64_t each : {10, 0, 0, 10}) out.number(each);
  });
  append_rows(restore, {1, 1, 0, 0, 1, 0, 7, 3, 1, 1});
  const std::pair<const char*, const rpc::Payload*> all[] = {
      {"ps.see", &see}, {"ps.push_ids", &push}, {"ps.restore_table", &restore}};
  uint64_t sequence = 0;
  const uint64_t number = client_number(client);
  const auto send = [&](const char* method, const rpc::Payload& what) {
    ++sequence;
    client.call(method,
                numbered({.client = number, .sequence = sequence, .oldest = sequence}, what));
  };
  for (const auto& [method, what] : all) {
    send(method, *what);
    for (int i = 0; i < 300; ++i) {
      std::string damaged = what->text();
      damaged[random() % damaged.size()] = static_cast<char>(random());
      if (i % 3 == 0) damaged.resize(random() % damaged.size());
      try {
        send(method, rpc::Payload(damaged));
      } catch (const Error&) {
      }
    }
  }
  rpc::Payload unordered = header_of([](auto& out) {
    write_step(out, {.rule = update_rules::SgdStep{1}, .how = {}, .slots = {}});
    out.number(2);
    out.number(0);
  });
  append_rows(unordered, {8, 8});
  append_bytes(unordered, ones({2, kWidth}));
  EXPECT_THROW(send("ps.push_ids", unordered), InvalidArgument);
  EXPECT_LE(there.table().size(), 8);
}

TEST(RemoteTable, SaysWhatItCannotDo) {
  const TestServers servers(2);
  const DynamicTableOptions options{.seed = 4};
  Trainer there(servers.coordinator(fixed_shards_partitioner(2)), 8, options,
                testing::row_methods()[0]);
  there.step({1, 2});
  const Variable& rows = there.rows();
  expect_error<FailedPrecondition>({"\"rows\"", "options", "others"},
                                   [&] { DynamicTable(rows, {.admit_after = 2}); });
  EXPECT_EQ(DynamicTable(rows, options).size(), 2) << "the same one";
  expect_error<Unimplemented>({"embedding_lookup", "\"rows\"", "ids"},
                              [&] { embedding_lookup(rows, tensor_of({0})); });
  expect_error<Unimplemented>({"\"rows\"", "ids"}, [&] {
    rows.scatter_add({.values = ones({1, kWidth}), .indices = tensor_of({0}), .dense_shape = {}});
  });
  expect_error<Unimplemented>({"apply_gradients", "\"rows\"", "lookups"}, [&] {
    there.updater().apply(Gradients({{Gradient(ones({8, kWidth})), rows}}),
                          update_rules::SgdStep{.learning_rate = 1});
  });
  expect_error<Unimplemented>({"gradient_tape", "\"rows\"", "lookups alone"}, [&] {
    there.strategy().run([&] {
      GradientTape tape;
      const Tensor loss = rows.value().sum() + there.table().lookup(tensor_of({1})).sum();
      tape.gradient(loss, std::span(&rows, 1));
    });
  });
  // Another process, which does not know that it is one.
  const Strategy other = servers.worker(0, 1, fixed_shards_partitioner(2));
  const Variable same = bind_variable(other, "rows");
  const auto updater = variables::store_of("[test] ", same).make_updater({same}, {.name = "sgd"});
  const IndexedSlices by_number{
      .values = ones({1, kWidth}), .indices = tensor_of({0}), .dense_shape = {}};
  expect_error<FailedPrecondition>({"\"rows", "DynamicTable"}, [&] {
    updater->apply(Gradients({{Gradient(by_number), same}}),
                   update_rules::SgdStep{.learning_rate = 1});
  });
  TestServers sync(1);
  sync.sync_pushes = {.needed = 2};
  expect_error<Unimplemented>({"[dynamic_table]", "sync_replicas"}, [&] {
    Trainer(sync.coordinator(), 8, options, testing::row_methods()[0]);
  });
}

}  // namespace
}  // namespace cohort::internal::coordinator
