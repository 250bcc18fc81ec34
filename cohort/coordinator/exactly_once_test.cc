// SPDX-License-Identifier: Apache-2.0
//
// Functions whose changes count once, over real connections to servers and workers that are threads
// of this process; tests/parameter_servers kills real ones.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/failpoint.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/internal/closure_effects.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/parameters/test_groups.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/coordinator/saved_iterator.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TestCluster;
using OnceNumbers = std::vector<float>;

void add_once(const Variable& v, double x) { v.assign_add(full(v.shape(), x)); }
double add_and_read(const Variable& v) { return v.assign_add(scalar(1)).item<double>(); }
void add_and_fail(const Variable& v) {
  v.assign_add(full(v.shape(), 1000));
  throw InvalidArgument("as it is meant to");
}
void add_and_swallow(const Variable& v) {
  try {
    v.assign_add(full(v.shape(), 1));
  } catch (const Error&) {  // and goes on
  }
}
std::shared_ptr<SavedIterator> make_saved(int64_t end, int64_t bytes) {
  return std::make_shared<SavedIterator>(Dataset::range(end),
                                         SavedIteratorOptions{.name = "place", .bytes = bytes});
}
std::vector<int64_t> take_rows(SavedIterator& rows, int count, bool fails) {
  std::vector<int64_t> out;
  for (int i = 0; i < count; ++i) {
    const auto row = rows.next();
    out.push_back(row ? row->as<Tensor>().item<int64_t>() : -1);
  }
  if (fails) throw InvalidArgument(str_cat("with ", out.front()));
  return out;
}
std::vector<int64_t> take_rows_in_cache(SavedIterator& rows, int count) {
  const auto cache = get_strategy().extended().cache_variable_reads();
  return take_rows(rows, count, false);
}
double same(double x) { return x; }
COHORT_REGISTER_FUNCTION(same);
COHORT_REGISTER_FUNCTION(add_once);
COHORT_REGISTER_FUNCTION(add_and_read);
COHORT_REGISTER_FUNCTION(add_and_fail);
COHORT_REGISTER_FUNCTION(add_and_swallow);
COHORT_REGISTER_FUNCTION(make_saved);
COHORT_REGISTER_FUNCTION(take_rows);
COHORT_REGISTER_FUNCTION(take_rows_in_cache);

// Which place fails how often, and how.
std::atomic<int> g_failures{0};
std::atomic<const char*> g_failing{""};
std::atomic<bool> g_is_absence{false};
void fail_there(const char* place) {
  if (std::string(place) != g_failing.load() || g_failures <= 0) return;
  --g_failures;
  if (g_is_absence) throw Unavailable("the line is cut", "ps 0");
  throw Internal("the disk is full");
}

class ExactlyOnce : public ::testing::Test {
 protected:
  ~ExactlyOnce() override { internal::base::g_failpoint_hook = nullptr; }
  static void fail(const char* place, int times, bool is_absence) {
    g_failing = place;
    g_failures = times;
    g_is_absence = is_absence;
    internal::base::g_failpoint_hook = &fail_there;
  }
  static double number(const Variable& v) { return v.value().item<double>(); }

  TestCluster cluster_{1, 2};
  const ParameterServerStrategy strategy_{
      {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster_.spec())}};
  ClusterCoordinator coordinator_{strategy_};
  const Scope scope_ = strategy_.scope();
  const Variable v_{scalar(0), {.name = "v"}};
  const Variable w_{full({3}, 0.0), {.name = "w"}};
};

TEST_F(ExactlyOnce, ChangesAreThereWithTheResult) {
  for (int i = 0; i < 20; ++i) coordinator_.schedule_exactly_once(add_once, i % 2 ? w_ : v_, 1.0);
  coordinator_.join();
  EXPECT_EQ(number(v_), 10);
  EXPECT_EQ(to_vector<float>(w_.value()), OnceNumbers(3, 10));
}

TEST_F(ExactlyOnce, AFunctionReadsWhatWasBeforeItAndAfterTheLastOne) {
  std::vector<RemoteValue<double>> read;
  for (int i = 0; i < 5; ++i) read.push_back(coordinator_.schedule_exactly_once(add_and_read, v_));
  read.push_back(coordinator_.schedule(add_and_read, v_));
  EXPECT_EQ(coordinator_.fetch(read), (std::vector<double>{0, 1, 2, 3, 4, 6}));
}

TEST_F(ExactlyOnce, NothingOfOneThatThrowsIsDone) {
  for (int i = 0; i < 3; ++i) {
    const auto failed = coordinator_.schedule_exactly_once(add_and_fail, w_);
    EXPECT_THROW(coordinator_.join(), Error);
    expect_error<Error>({"as it is meant to"}, [&] { failed.get(); });
  }
  coordinator_.schedule_exactly_once(add_once, w_, 1.0);
  coordinator_.join();
  EXPECT_EQ(to_vector<float>(w_.value()), OnceNumbers(3, 1));
}

// Else what counts would be another thing than what the function was told.
TEST_F(ExactlyOnce, AnErrorThatTheFunctionHasCaughtIsNone) {
  fail("ps.prepares", 1, /*is_absence=*/false);
  coordinator_.schedule_exactly_once(add_and_swallow, v_);
  expect_error<FailedPrecondition>({"schedule_exactly_once", "caught", "1 of them"},
                                   [&] { coordinator_.join(); });
  EXPECT_EQ(number(v_), 0);
}

// Longer than a call is sent again by itself.
TEST_F(ExactlyOnce, AServerThatComesBackDoesWhatWasDecided) {
  fail("ps.settles", 6, /*is_absence=*/true);
  coordinator_.schedule_exactly_once(add_once, v_, 1.0);
  coordinator_.schedule_exactly_once(add_once, w_, 1.0);
  coordinator_.join();
  EXPECT_LE(g_failures, 0);
  EXPECT_EQ(number(v_), 1);
  EXPECT_EQ(to_vector<float>(w_.value()), OnceNumbers(3, 1));
}

TEST_F(ExactlyOnce, AServerThatCannotDoItIsToldOf) {
  fail("ps.settles", 1, /*is_absence=*/false);
  const auto unknown = coordinator_.schedule_exactly_once(add_once, v_, 1.0);
  expect_error(ErrorCode::kUnknown, {"schedule_exactly_once", "the disk is full", "checkpoint"},
               [&] { coordinator_.join(); });
  expect_error(ErrorCode::kUnknown, {"the disk is full"}, [&] { unknown.get(); });
}

// It was decided that it counts, and a server is lost while it is told: nobody knows what it has
// done.
TEST_F(ExactlyOnce, AServerThatIsLostMeanwhileLeavesItUnknown) {
  fail("ps.settles", 1 << 30, /*is_absence=*/true);
  const auto unknown = coordinator_.schedule_exactly_once(add_once, v_, 1.0);
  while (g_failures == 1 << 30) std::this_thread::yield();
  cluster_.stop("ps", 0);
  expect_error(ErrorCode::kUnknown, {"schedule_exactly_once", "some may have", "ps 0"},
               [&] { unknown.get(); });
  expect_error<Unavailable>({"ps 0"}, [&] { coordinator_.join(); });
}

TEST_F(ExactlyOnce, WhatIsReadIsReadOnce) {
  const auto rows = coordinator_.create_per_worker_resource(make_saved, int64_t{6}, int64_t{4096});
  const auto take = [&](int count, bool fails) {
    return coordinator_.schedule_exactly_once(take_rows, rows, count, fails);
  };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(take(2, false).get(), (Rows{0, 1}));
  const auto thrown = take(2, true);
  EXPECT_THROW(coordinator_.join(), Error);
  expect_error<Error>({"with 2"}, [&] { thrown.get(); });
  EXPECT_EQ(take(1, false).get(), (Rows{2}));
  // Another object, as of a worker that was started again.
  const auto again = coordinator_.create_per_worker_resource(make_saved, int64_t{6}, int64_t{4096});
  const auto later = coordinator_.schedule_exactly_once(take_rows, again, 2, false);
  EXPECT_EQ(later.get(), (Rows{3, 4}));
  EXPECT_EQ(take(2, false).get(), (Rows{5, -1}));
  EXPECT_EQ(take(1, false).get(), (Rows{-1}));
}

// Its place is the worker's own, and moves with each row.
TEST_F(ExactlyOnce, RowsGoOnWhereReadsAreCached) {
  const auto rows = coordinator_.create_per_worker_resource(make_saved, int64_t{6}, int64_t{4096});
  const auto plain = coordinator_.schedule(take_rows_in_cache, rows, 3);
  EXPECT_EQ(plain.get(), (std::vector<int64_t>{0, 1, 2}));
  const auto once = coordinator_.schedule_exactly_once(take_rows_in_cache, rows, 2);
  EXPECT_EQ(once.get(), (std::vector<int64_t>{3, 4}));
}

TEST_F(ExactlyOnce, APositionThatDoesNotFitIsRefused) {
  const auto rows = coordinator_.create_per_worker_resource(make_saved, int64_t{6}, int64_t{8});
  coordinator_.schedule_exactly_once(take_rows, rows, 1, false);
  expect_error<InvalidArgument>({"SavedIterator", "at most 4 bytes", ".bytes"},
                                [&] { coordinator_.join(); });
}

TEST_F(ExactlyOnce, IdsNeedAJournal) {
  EXPECT_FALSE(coordinator_.resumed());
  expect_error<FailedPrecondition>({"[schedule]", "journal", "\"a\""},
                                   [&] { coordinator_.schedule({.id = "a"}, same, 2.0); });
  expect_error<FailedPrecondition>({"forget_finished", "journal"},
                                   [&] { coordinator_.forget_finished(); });
}

TEST(ExactlyOnceCoordinator, NeedsParameterServers) {
  const TestCluster cluster(1);
  const cohort::testing::CoordinatedStrategy strategy(cluster.options());
  ClusterCoordinator coordinator(strategy);
  expect_error<FailedPrecondition>({"schedule_exactly_once", "parameter servers"},
                                   [&] { coordinator.schedule_exactly_once(same, 1.0); });
}

}  // namespace

namespace internal::coordinator {
namespace {

ParameterHandle zeros_of(ParameterServers& servers, const std::string& name, int64_t rows) {
  return servers.make_or_bind({.name = name, .shape = {rows}},
                              [](int64_t part, int64_t /*first*/) { return full({part}, 0.0); });
}
float first_of(ParameterServers& servers, const ParameterHandle& h, const StoredPlace& place = {}) {
  return servers.pull_range(h, place, {0, 1}).item<float>();
}
void settle(ParameterServers& servers, const ClosureSettlement& what, uint64_t floor) {
  std::vector<std::exception_ptr> errors;
  servers.settle({what}, floor, errors);
  for (const std::exception_ptr& each : errors) EXPECT_EQ(each, nullptr);
}

TEST(Transaction, SlotsAreChangedWithTheirVariable) {
  const TestServers test(2);
  const auto servers = test.connect();
  const ParameterHandle h = zeros_of(*servers, "w", 4);
  servers->make_slots(h, "momentum", {0});
  const UpdateStep step{.rule = update_rules::MomentumStep{.learning_rate = 1, .momentum = 0.5},
                        .how = {},
                        .slots = "momentum"};
  std::vector<uint64_t> counts;
  {
    Transaction once(1, 1);
    ParameterServers::Push push(*servers);
    push.dense(h, step, full({4}, 1.0));
    push.wait();
    counts = once.counts();
  }
  EXPECT_EQ(first_of(*servers, h), 0);
  EXPECT_EQ(first_of(*servers, h, {.slots = "momentum", .slot = 0}), 0);
  for (int twice = 0; twice < 2; ++twice) {
    settle(*servers, {.closure = 1, .attempt = 1, .counts = counts}, 1);
    EXPECT_EQ(first_of(*servers, h), -1);
    EXPECT_EQ(first_of(*servers, h, {.slots = "momentum", .slot = 0}), -1);
  }
}

TEST(Transaction, ALateAttemptIsRefused) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle h = zeros_of(*servers, "w", 1);
  const auto add = [&](uint64_t closure, uint64_t attempt) {
    Transaction once(closure, attempt);
    servers->write(h, {}, variables::Write::kAdd, full({1}, 1.0));
    return once.counts();
  };
  add(1, 1);
  const std::vector<uint64_t> counts = add(1, 2);
  testing::expect_error<FailedPrecondition>({"taken for lost"}, [&] { add(1, 1); });
  settle(*servers, {.closure = 1, .attempt = 2, .counts = counts}, 1);
  testing::expect_error<FailedPrecondition>({"taken for lost"}, [&] { add(1, 3); });
  EXPECT_EQ(first_of(*servers, h), 1);
}

// Stands still where it is told to, and counts who comes by.
std::atomic<int> g_telling{0};
std::atomic<int> g_doing{0};
std::atomic<bool> g_is_released{false};
std::atomic<bool> g_does_throw{false};
void stand_still(const char* place) {
  if (std::string(place) == "ps.settles") ++g_telling;
  if (std::string(place) != "ps.does") return;
  ++g_doing;
  while (!g_is_released) std::this_thread::yield();
  if (g_does_throw) throw Internal("the disk is full");
}

class SettledTwice : public ::testing::TestWithParam<bool> {
 protected:
  SettledTwice() {
    g_telling = 0;
    g_doing = 0;
    g_is_released = false;
    g_does_throw = GetParam();
  }
  ~SettledTwice() override { base::g_failpoint_hook = nullptr; }
};

// Its answer is lost for longer than a call is sent again by itself: with another number.
TEST_P(SettledTwice, TheSecondAnswerIsTheFirstOnes) {
  const TestServers test(1);
  const auto servers = test.connect();
  const ParameterHandle h = zeros_of(*servers, "w", 1);
  ClosureSettlement what{.closure = 1, .attempt = 1};
  {
    Transaction once(1, 1);
    servers->write(h, {}, variables::Write::kAdd, full({1}, 1.0));
    what.counts = once.counts();
  }
  base::g_failpoint_hook = &stand_still;
  std::array<std::exception_ptr, 3> got;
  const auto tell = [&](std::size_t i) {
    std::vector<std::exception_ptr> errors;
    servers->settle({what}, 1, errors);
    EXPECT_TRUE(g_is_released) << "while it is still being done";
    got[i] = errors.at(0);
  };
  std::thread first(tell, 0);
  while (g_doing == 0) std::this_thread::yield();
  std::thread second(tell, 1);
  while (g_telling < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for one that would not wait
  g_is_released = true;
  first.join();
  second.join();
  test.services[0]->restore(rpc::Payload(test.services[0]->snapshot().text()));
  tell(2);
  EXPECT_EQ(g_doing, 1);
  for (const std::exception_ptr& each : got) {
    EXPECT_EQ(each != nullptr, GetParam());
    EXPECT_TRUE(!each || text_of(each).find("the disk is full") != std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutError, SettledTwice, ::testing::Bool());

TEST(Transaction, WhatWaitsHasABound) {
  constexpr int64_t kRows = 1000;  // of 4 bytes
  const TestServers test(1, {.most_prepared_bytes = 10'000});
  const auto servers = test.connect();
  const ParameterHandle h = zeros_of(*servers, "w", kRows);
  const auto add = [&](uint64_t closure) {
    Transaction once(closure, 1);
    servers->write(h, {}, variables::Write::kAdd, full({kRows}, 1.0));
    return ClosureSettlement{.closure = closure, .attempt = 1, .counts = once.counts()};
  };
  const ClosureSettlement one = add(1);
  const ClosureSettlement two = add(2);
  testing::expect_error(ErrorCode::kResourceExhausted, {"schedule_exactly_once", "10000 bytes"},
                        [&] { add(3); });
  settle(*servers, one, 1);
  settle(*servers, add(3), 1);
  settle(*servers, two, 1);
  EXPECT_EQ(first_of(*servers, h), 3);
}

// Others that count, and some that need not, end while one runs for hours.
std::atomic<bool> g_may_end{false};
void run_long() {
  while (!g_may_end) std::this_thread::yield();
}
void run_short() {}
COHORT_REGISTER_FUNCTION(run_long);
COHORT_REGISTER_FUNCTION(run_short);

TEST(ClosureEffects, OneThatRunsLongLetsServersForgetTheOthers) {
  const cohort::testing::TestCluster cluster(2, 1);
  const TestServers test(1);
  ClusterCoordinator coordinator(
      test.coordinator(std::make_shared<ClusterConnection>(cluster.options())));
  const auto bytes = [&] { return test.services[0]->snapshot().size(); };
  coordinator.schedule_exactly_once(run_short).get();
  const auto long_one = coordinator.schedule_exactly_once(run_long);
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 50; ++i) {
    coordinator.schedule(run_short).get();
    coordinator.schedule_exactly_once(run_short).get();
    sizes.push_back(bytes());
  }
  EXPECT_EQ(sizes.front(), sizes.back()) << "of what is remembered";
  g_may_end = true;
  coordinator.join();
}

// Functions that throw, one after the other, and none that counts: what they had prepared goes.
TEST(ClosureEffects, KeepNothingOfWhatHasFailed) {
  const TestServers test(1);
  const auto servers = test.connect();
  constexpr int64_t kRows = 1 << 18;
  const ParameterHandle h = zeros_of(*servers, "w", kRows);
  ClosureEffects effects(servers);
  const auto before = test.services[0]->snapshot().size();
  const auto fail = [&](bool prepares) {
    const uint64_t id = effects.open();
    const uint64_t attempt = effects.begin(0, id);
    if (prepares) {
      Transaction once(id, attempt);
      servers->write(h, {}, variables::Write::kAdd, full({kRows}, 1.0));
    }
    RunAnswer answer;
    answer.calls.push_back({.id = id, .state = CallAnswer::State::kError});
    effects.settle(0, answer, [] { return false; });
    effects.end(id);
  };
  for (int i = 1; i <= 8; ++i) fail(true);
  EXPECT_GT(test.services[0]->snapshot().size(), before + 4 * kRows);
  EXPECT_LT(test.services[0]->snapshot().size(), before + 9 * kRows) << "of the last ones at most";
  fail(false);
  EXPECT_LT(test.services[0]->snapshot().size(), before + 4 * kRows);
}

// What is prepared, and what is done, goes with the state: to a backup that leads, and to a server
// that comes back and leads then.
TEST(ReplicatedTransaction, OutlivesServers) {
  const cluster::StoreServer store{cluster::StoreServerOptions{}};
  TestGroups groups(store.address(), 1, std::chrono::milliseconds(1000));
  const auto servers = groups.connect();
  servers->begin(1);
  const ParameterHandle h = zeros_of(*servers, "w", 4);
  const int first = h.shards[0].place.server;
  const auto add = [&](uint64_t closure) {
    Transaction once(closure, 1);
    servers->write(h, {}, variables::Write::kAdd, full({4}, 1.0));
    return ClosureSettlement{.closure = closure, .attempt = 1, .counts = once.counts()};
  };
  const ClosureSettlement one = add(1);
  groups.stop(first);
  settle(*servers, one, 1);
  EXPECT_EQ(first_of(*servers, h), 1);
  const ClosureSettlement two = add(2);
  groups.start(first);
  groups.stop(1 - first);
  settle(*servers, one, 1);
  EXPECT_EQ(first_of(*servers, h), 1);
  settle(*servers, two, 1);
  settle(*servers, two, 2);
  EXPECT_EQ(first_of(*servers, h), 2);
}

}  // namespace
}  // namespace internal::coordinator
}  // namespace cohort
