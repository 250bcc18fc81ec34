// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/store/store.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "cohort/base/strings.h"
#include "cohort/cluster/store/store_keeper.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/rpc/client.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/ports.h"

namespace cohort::internal::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;
using testing::run_with_deadline;

constexpr seconds kLimit{60};

StoreClientOptions task(const StoreServer& server, const std::string& name) {
  return {.address = server.address(), .task = name, .task_address = name + ":2222"};
}

TEST(StoreOfAKeeper, HasWhatAnyStoreHas) {
  const auto store = StoreKeeper().store();
  EXPECT_EQ(store->insert("k", "first"), "first");
  EXPECT_EQ(store->insert("k", "second"), "first");
  EXPECT_EQ(store->get("k", seconds(1)), "first");
  EXPECT_FALSE(store->find("nothing"));
  EXPECT_EQ(store->add("n", 2), 2);
  store->barrier("alone", 1, seconds(1));
  run_with_deadline(kLimit, [&] {
    expect_error<DeadlineExceeded>({"\"never\""}, [&] { store->get("never", milliseconds(20)); });
  });
}

TEST(Stores, TasksAgreeOnTheFirstWriter) {
  StoreServer server({});
  constexpr int kTasks = 4;
  std::vector<std::string> heard(kTasks);
  run_with_deadline(kLimit, [&] {
    std::vector<std::jthread> tasks;
    for (int t = 0; t < kTasks; ++t) {
      tasks.emplace_back([&, t] {
        const StoreClient client(task(server, "worker " + std::to_string(t)));
        Store& store = *client.store();
        store.barrier("start", kTasks, seconds(30));
        heard[static_cast<std::size_t>(t)] = store.insert("step", std::to_string(t));
        for (int i = 0; i < 10; ++i) store.add("sum", 1);
        store.barrier("end", kTasks, seconds(30));
        EXPECT_EQ(store.find("sum"), "40");
      });
    }
  });
  for (const std::string& each : heard) EXPECT_EQ(each, heard[0]);
  EXPECT_EQ(server.store()->find("step"), heard[0]);
}

TEST(Stores, GetWaitsForAnother) {
  StoreServer server({});
  const StoreClient a(task(server, "worker 0"));
  const StoreClient b(task(server, "worker 1"));
  run_with_deadline(kLimit, [&] {
    auto waiting = std::async(std::launch::async, [&] { return a.store()->get("k", seconds(30)); });
    b.store()->set("k", "from b");
    EXPECT_EQ(waiting.get(), "from b");
  });
}

TEST(Stores, ALateProcessIsFencedByName) {
  StoreServer server({});
  const StoreClient first(task(server, "worker 0"));
  const StoreClient second(task(server, "worker 0"));
  EXPECT_EQ(second.generation(), 2U);
  expect_error<FailedPrecondition>({"worker 0 (generation 1) is too late"},
                                   [&] { first.store()->set("k", "late"); });
  EXPECT_FALSE(server.store()->find("k"));
}

TEST(Stores, ALeaseThatIsNotRenewedEnds) {
  StoreServer server({});
  StoreClientOptions options = task(server, "worker 0");
  options.lease = milliseconds(50);
  const StoreClient silent(options);
  StoreClient watching(task(server, "worker 1"));
  run_with_deadline(kLimit, [&] {
    int64_t version = 0;
    for (bool dead = false; !dead;) {
      const StoreReply news = watching.heartbeat(version, "watching", "", seconds(30), seconds(10));
      version = news.number;
      for (const StoreMember& each : news.members) {
        dead |= each.task == "worker 0" && each.state == StoreMember::State::kDead;
      }
    }
    EXPECT_THROW(silent.store()->set("k", "late"), FailedPrecondition);
  });
}

// F3
TEST(Stores, F3_StrangersGetNothing) {
  const rpc::RpcSecurity ours = {.job = "job",
                                 .token = rpc::Secret("a token that nobody can guess")};
  StoreServer server({.security = ours});
  for (const rpc::RpcSecurity& stranger :
       {rpc::RpcSecurity{.job = "job"},
        rpc::RpcSecurity{.job = "job", .token = rpc::Secret("some other token ......")}}) {
    StoreClientOptions options = task(server, "worker 0");
    options.security = stranger;
    EXPECT_THROW(StoreClient{options}, rpc::Unauthenticated);
  }
  EXPECT_TRUE(server.store()->members().empty());
  StoreClientOptions options = task(server, "worker 0");
  options.security = ours;
  const StoreClient client(options);
  client.store()->set("k", "v");
}

TEST(Stores, BytesThatAreNoQuestionAreDataLoss) {
  StoreServer server({});
  rpc::RpcClient client({.address = server.address()});
  for (const StoreVerb verb : kStoreVerbs) {
    EXPECT_THROW(client.call(store_verb_name(verb), rpc::Payload("garbage")), DataLoss);
  }
}

TEST(Stores, OneThatEndsTellsWhoWaits) {
  auto server = std::make_optional<StoreServer>(StoreServerOptions{});
  StoreClientOptions options = task(*server, "worker 0");
  options.keeper = "worker 3";
  StoreClient client(options);
  run_with_deadline(kLimit, [&] {
    auto waiting = std::async(std::launch::async, [&] { client.store()->get("k", seconds(30)); });
    server.reset();
    EXPECT_THROW(waiting.get(), Unavailable);
    expect_error<Unavailable>({"the job's store, which worker 3 keeps", options.address},
                              [&] { client.store()->set("k", "v"); });
  });
}

TEST(Stores, OneThatIsNotThereIsADeadline) {
  const std::string address = str_cat("127.0.0.1:", testing::free_ports(1).front());
  run_with_deadline(kLimit, [&] {
    expect_error<DeadlineExceeded>({address}, [&] {
      StoreClient({.address = address, .task = "worker 0", .start_timeout = milliseconds(100)});
    });
  });
}

}  // namespace
}  // namespace cohort::internal::cluster
