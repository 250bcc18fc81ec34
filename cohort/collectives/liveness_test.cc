// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a job see when one of them goes silent. Processes are stopped for real in
// tests/multi_worker.
#include "cohort/collectives/liveness.h"

#include <gtest/gtest.h>

#include <stdlib.h>

#include <functional>
#include <thread>

#include "cohort/base/strings.h"
#include "cohort/base/write_guard.h"
#include "cohort/collectives/test_job.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/testing/ports.h"

namespace cohort::internal::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expect_error;
using testing::run_with_deadline;

constexpr seconds kLimit{60};

LivenessOptions profile(int size) {
  LivenessOptions out{.heartbeat = milliseconds(50), .lease = milliseconds(2000)};
  for (int r = 0; r < size; ++r) {
    out.tasks.push_back(str_cat("worker ", r));
    out.addresses.push_back(str_cat("localhost:", 2222 + r));
  }
  return out;
}

std::vector<std::unique_ptr<Communicator>> connected(Carrier carrier, int size) {
  std::vector<std::unique_ptr<Communicator>> out;
  for (auto& transport : connect_ranks(carrier, size)) {
    out.push_back(std::make_unique<Communicator>(std::move(transport)));
  }
  return out;
}

// Calls body on a thread for each rank.
void on_each(int size, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&, r] { body(r); });
}

using LivenessOver = ::testing::TestWithParam<Carrier>;
INSTANTIATE_TEST_SUITE_P(Carriers, LivenessOver,
                         ::testing::Values(Carrier::kTcp, Carrier::kSharedMemory, Carrier::kTls),
                         carrier_name);

TEST_P(LivenessOver, WatchedRanksWorkAndEnd) {
  auto ranks = connected(GetParam(), 3);
  run_with_deadline(kLimit, [&] {
    on_each(3, [&](int r) {
      const auto watched = watch_over(std::move(ranks[static_cast<std::size_t>(r)]), profile(3));
      // Longer than the lease: heartbeats go on whatever the program does.
      const auto begin = std::chrono::steady_clock::now();
      for (bool goes_on = true; goes_on;) {
        watched->take_turn("[test.step] ", [&] {
          goes_on = std::chrono::steady_clock::now() - begin < milliseconds(2500);
          watched->broadcast(std::as_writable_bytes(std::span(&goes_on, 1)), 0);
        });
      }
      EXPECT_EQ(watched->store()->insert("k", str_cat(r)).size(), 1U);
      watched->barrier();
    });
  });
}

// A3, A4: the others are told within the lease and a little, by name, and can be told which rank.
TEST_P(LivenessOver, A3_WhoGoesSilentIsNamedByAll) {
  auto ranks = connected(GetParam(), 3);
  cluster::StoreServer server({});
  run_with_deadline(kLimit, [&] {
    on_each(3, [&](int r) {
      Communicator& mine = *ranks[static_cast<std::size_t>(r)];
      LivenessOptions options = profile(3);
      auto client = std::make_shared<cluster::StoreClient>(
          cluster::StoreClientOptions{.address = server.address(),
                                      .task = options.tasks[static_cast<std::size_t>(r)],
                                      .lease = options.lease});
      mine.barrier();
      // Rank 0, who would decide what the failure is, has nobody who renews its lease, and waits.
      std::optional<Liveness> watched;
      if (r > 0) {
        watched.emplace(client, mine, options);
        watched->look();
      }
      const auto wait = [&] {
        mine.take_turn("[test.step] ", [&] {
          if (r == 0) {
            while (!mine.failed()) std::this_thread::yield();
            mine.check();
          }
          mine.barrier();
        });
      };
      expect_error<Unavailable>({"[liveness] worker 0 (localhost:2222) has not been heard of for",
                                 "its lease is 2 s", "test.step", "(rank 0 of 3)"},
                                wait);
      // Nobody waits for it later.
      if (r > 0) {
        EXPECT_THROW(mine.take_turn("again", [&] { mine.barrier(); }), Unavailable);
      }
      if (r == 0) {
        expect_error<FailedPrecondition>({"worker 0 (generation 1) is too late"},
                                         [&] { client->store()->set("k", "late"); });
      }
    });
  });
}

TEST_P(LivenessOver, AStoreThatIsGoneEndsAllByTheirOwnTimers) {
  auto ranks = connected(GetParam(), 2);
  auto server = std::make_optional<cluster::StoreServer>(cluster::StoreServerOptions{});
  run_with_deadline(kLimit, [&] {
    on_each(2, [&](int r) {
      Communicator& mine = *ranks[static_cast<std::size_t>(r)];
      const LivenessOptions options = profile(2);
      const auto client = std::make_shared<cluster::StoreClient>(
          cluster::StoreClientOptions{.address = server->address(),
                                      .keeper = "the launcher",
                                      .task = options.tasks[static_cast<std::size_t>(r)],
                                      .lease = options.lease});
      Liveness watched(client, mine, options);
      watched.look();
      mine.barrier();
      if (r == 0) server.reset();
      expect_error<Unavailable>({"[liveness] worker ", "has had no answer for", "the lease is 2 s",
                                 "which the launcher keeps"},
                                [&] {
                                  while (true) mine.barrier();
                                });
      // What it saves from its own timer on, if it was another rank's that has come first, may be
      // another process's by now.
      ASSERT_TRUE(testing::comes_true([] {
        try {
          base::check_may_write();
          return false;
        } catch (const FailedPrecondition&) {
          return true;
        }
      }));
      expect_error<FailedPrecondition>({"is too late", "must not write"},
                                       [] { base::check_may_write(); });
    });
  });
}

// What it was told outlives the strategy that heard it, until the process has a place again.
TEST(Liveness, AProcessThatWasGivenUpPublishesNothing) {
  auto ranks = connected(Carrier::kTcp, 2);
  cluster::StoreServer server({});
  const LivenessOptions options = profile(2);
  const auto join = [&](std::size_t r) {
    return std::make_shared<cluster::StoreClient>(cluster::StoreClientOptions{
        .address = server.address(), .task = options.tasks[r], .lease = options.lease});
  };
  run_with_deadline(kLimit, [&] {
    {
      Liveness first(join(1), *ranks[1], options);
      base::check_may_write();
      join(1);  // another process of the task
      expect_error<FailedPrecondition>({"worker 1 (generation 1) is too late"},
                                       [] { base::check_may_write(); });
    }
    expect_error<FailedPrecondition>({"worker 1 (generation 1) is too late"},
                                     [] { base::check_may_write(); });
    ::setenv(cluster::kStoreVariable, server.address().c_str(), 1);
    ranks = connected(Carrier::kTcp, 2);
    on_each(2, [&](int r) {
      const auto watched = watch_over(std::move(ranks[static_cast<std::size_t>(r)]), options);
      watched->barrier();
      base::check_may_write();
      watched->barrier();
    });
    ::unsetenv(cluster::kStoreVariable);
    base::check_may_write();
  });
}

// Strategies of one process, with the launcher's store, at once and one after the other.
TEST(Liveness, StrategiesOfOneProcessShareAStore) {
  cluster::StoreServer server({});
  ::setenv(cluster::kStoreVariable, server.address().c_str(), 1);
  run_with_deadline(kLimit, [&] {
    for (int round = 0; round < 2; ++round) {
      auto first = connected(Carrier::kTcp, 2);
      auto second = connected(Carrier::kTcp, 2);
      on_each(2, [&](int r) {
        const auto at = static_cast<std::size_t>(r);
        const auto a = watch_over(std::move(first[at]), profile(2));
        const auto b = watch_over(std::move(second[at]), profile(2));
        a->barrier();
        b->barrier();
        EXPECT_EQ(a->store()->insert("step", str_cat("a", round)), str_cat("a", round));
        EXPECT_EQ(b->store()->insert("step", str_cat("b", round)), str_cat("b", round));
        EXPECT_EQ(a->store()->find("step"), str_cat("a", round));
        base::check_may_write();
        a->barrier();
        b->barrier();
      });
    }
  });
  ::unsetenv(cluster::kStoreVariable);
}

TEST(Liveness, AStoreOfStrangersIsRefused) {
  ::setenv(cluster::kStoreVariable, "203.0.113.7:2222", 1);
  auto ranks = connected(Carrier::kTcp, 2);
  run_with_deadline(kLimit, [&] {
    on_each(2, [&](int r) {
      LivenessOptions options = profile(2);
      options.allow_insecure = true;
      expect_error<InvalidArgument>(
          {"COHORT_STORE=203.0.113.7:2222", "COHORT_JOB_TOKEN", "say that it is a worker"},
          [&] { watch_over(std::move(ranks[static_cast<std::size_t>(r)]), options); });
    });
  });
  ::unsetenv(cluster::kStoreVariable);
}

TEST(Liveness, WrongOptionsAreNamed) {
  auto ranks = connected(Carrier::kTcp, 2);
  LivenessOptions options = profile(2);
  options.lease = options.heartbeat;
  expect_error<InvalidArgument>({"50 ms and 50 ms"},
                                [&] { watch_over(std::move(ranks[0]), options); });
}

TEST(Liveness, AStoreThatNobodyKeepsIsNamedByAll) {
  const std::string nowhere = str_cat("127.0.0.1:", testing::free_ports(1).front());
  ::setenv(cluster::kStoreVariable, nowhere.c_str(), 1);
  auto ranks = connected(Carrier::kTcp, 2);
  run_with_deadline(kLimit, [&] {
    on_each(2, [&](int r) {
      LivenessOptions options = profile(2);
      options.start_timeout = milliseconds(100);
      expect_error<DeadlineExceeded>(
          {nowhere}, [&] { watch_over(std::move(ranks[static_cast<std::size_t>(r)]), options); });
    });
  });
  ::unsetenv(cluster::kStoreVariable);
}

}  // namespace
}  // namespace cohort::internal::collectives
