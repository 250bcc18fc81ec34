// SPDX-License-Identifier: Apache-2.0
//
// A coordinator and the functions that it schedules, whose workers are threads of this process:
// K01, K03 to K07, K10 to K13 of the conformance list, and semantics 7.4 to 7.7.
#include "cohort/coordinator/cluster_coordinator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include "cohort/coordinator/test_cluster.h"
#include "cohort/strategy/strategies.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using cohort::testing::CoordinatedStrategy;
using cohort::testing::expect_error;
using cohort::testing::TestCluster;

struct Answer {
  int two = 0;
  std::tuple<int, int> pair = {};
  std::vector<int> list = {};
  std::map<std::string, int> table = {};
};

Answer a_nest() { return {2, {3, 4}, {5}, {{"v", 1}}}; }
Tensor doubled(const Tensor& x, double by) { return x * by; }

std::atomic<int> g_ran{0};
void count_up() { ++g_ran; }
int which_worker() { return get_current_worker_index(); }
void fails(const std::string& text) { throw InvalidArgument(text); }
void fails_otherwise() { throw std::out_of_range("of the program's own"); }
void not_registered() {}

// Functions that are under way until the test says so.
std::atomic<int> g_begun{0};
std::atomic<bool> g_gate{false};
std::atomic<bool> g_later_gate{false};
void waits() {
  ++g_begun;
  g_begun.notify_all();
  g_gate.wait(false);
}
void waits_longer() {
  g_later_gate.wait(false);
  ++g_ran;
}
void open(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

std::atomic<int> g_ran_held{0};
void count_held() {
  ++g_ran;
  if (!g_gate) ++g_ran_held;
}
void opens() {
  ++g_ran;
  open(g_gate);
}
std::atomic<int> g_holder{-1};
void holds() {
  g_holder = get_current_worker_index();
  waits();
}

struct Counter {
  std::atomic<int> value{0};
  int step = 0;
};
std::atomic<int> g_made{0};
std::shared_ptr<Counter> make_counter(int step) {
  ++g_made;
  auto out = std::make_shared<Counter>();
  out->step = step;
  return out;
}
int count_on(Counter& counter) { return counter.value += counter.step; }
std::atomic<int> g_tries_without_servers{0};
std::shared_ptr<Counter> make_when_servers_answer(int begin) {
  if (--g_tries_without_servers >= 0) throw Unavailable("no server answers", "ps 0");
  auto out = std::make_shared<Counter>();
  out->value = begin;
  return out;
}
std::shared_ptr<Counter> make_fails(int) { throw InvalidArgument("the counter cannot be made"); }

Dataset make_numbers(int64_t end) { return Dataset::range(end); }
int64_t next_number(DistributedIterator& numbers) {
  return numbers.get_next().local().as<Tensor>().item<int64_t>();
}
Dataset make_no_data() { throw InvalidArgument("there is no file"); }

COHORT_REGISTER_FUNCTION(a_nest);
COHORT_REGISTER_FUNCTION(doubled);
COHORT_REGISTER_FUNCTION(count_up);
COHORT_REGISTER_FUNCTION(which_worker);
COHORT_REGISTER_FUNCTION(fails);
COHORT_REGISTER_FUNCTION(fails_otherwise);
COHORT_REGISTER_FUNCTION(waits);
COHORT_REGISTER_FUNCTION(waits_longer);
COHORT_REGISTER_FUNCTION(count_held);
COHORT_REGISTER_FUNCTION(opens);
COHORT_REGISTER_FUNCTION(holds);
COHORT_REGISTER_FUNCTION(make_counter);
COHORT_REGISTER_FUNCTION(count_on);
COHORT_REGISTER_FUNCTION(make_fails);
COHORT_REGISTER_FUNCTION(make_when_servers_answer);
COHORT_REGISTER_FUNCTION(make_numbers);
COHORT_REGISTER_FUNCTION(next_number);
COHORT_REGISTER_FUNCTION(make_no_data);

class Coordinator : public ::testing::Test {
 protected:
  void SetUp() override {
    g_ran = 0;
    g_ran_held = 0;
    g_made = 0;
    g_begun = 0;
    g_gate = false;
    g_later_gate = false;
  }
  /// So many functions that wait are under way.
  static void wait_for_begun(int count) {
    for (int begun = g_begun; begun < count; begun = g_begun) g_begun.wait(begun);
  }
  TestCluster cluster_;
  CoordinatedStrategy strategy_{cluster_.options()};
  ClusterCoordinator coordinator_{strategy_};
};

TEST_F(Coordinator, ResultsAreNests) {  // K01
  const RemoteValue<Answer> value = coordinator_.schedule(a_nest);
  const Answer answer = coordinator_.fetch(value);
  EXPECT_EQ(answer.two, 2);
  EXPECT_EQ(answer.pair, std::tuple(3, 4));
  EXPECT_EQ(answer.list, std::vector<int>{5});
  EXPECT_EQ(answer.table.at("v"), 1);
  EXPECT_EQ(value.status(), RemoteStatus::kReady);
}

TEST_F(Coordinator, ArgumentsAreReadWhenItIsScheduled) {
  Tensor x = ones({1000});
  const auto twice = coordinator_.schedule(doubled, x, 2);
  x.fill_(9);
  EXPECT_TRUE(twice.get().equal(full({1000}, 2)));
  const std::vector<RemoteValue<Tensor>> both = {twice, coordinator_.schedule(doubled, x, 0.5)};
  EXPECT_EQ(coordinator_.fetch(both)[1][0].item<double>(), 4.5);
}

TEST_F(Coordinator, WithoutFunctionsItIsDone) {  // K03
  coordinator_.join();
  EXPECT_TRUE(coordinator_.done());
}

TEST_F(Coordinator, AHandleThatWasMovedFromSaysSo) {
  ClusterCoordinator moved = coordinator_;
  const ClusterCoordinator elsewhere = std::move(moved);
  const auto expect_empty = [](const std::string& operation, const std::function<void()>& use) {
    expect_error<FailedPrecondition>(
        {"[cluster_coordinator." + operation + "]", "empty handle", "make it anew"}, use);
  };
  // NOLINTBEGIN(bugprone-use-after-move): what this is about.
  expect_empty("join", [&] { moved.join(); });
  expect_empty("done", [&] { moved.done(); });
  expect_empty("schedule", [&] { moved.schedule(count_up); });
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(elsewhere == coordinator_);
}

TEST_F(Coordinator, JoinWaitsForAll) {
  std::vector<RemoteValue<void>> all;
  for (int i = 0; i < 2000; ++i) all.push_back(coordinator_.schedule(count_up));
  coordinator_.join();
  EXPECT_EQ(g_ran, 2000);
  EXPECT_TRUE(coordinator_.done());
  for (const auto& each : all) EXPECT_EQ(each.status(), RemoteStatus::kReady);
}

TEST_F(Coordinator, SeveralThreadsScheduleAndJoin) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) coordinator_.schedule(count_up);
      coordinator_.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(g_ran, 1200);
}

TEST_F(Coordinator, EveryWorkerRunsFunctions) {
  const auto first = coordinator_.schedule(waits);
  const auto second = coordinator_.schedule(waits);
  wait_for_begun(2);  // one on each, for a worker runs one at a time
  EXPECT_FALSE(coordinator_.done());
  EXPECT_EQ(first.status(), RemoteStatus::kNotReady);
  open(g_gate);
  coordinator_.join();
  std::set<int> workers;
  for (int i = 0; i < 50; ++i) workers.insert(coordinator_.schedule(which_worker).get());
  for (const int worker : workers) EXPECT_TRUE(worker == 0 || worker == 1);
  expect_error<FailedPrecondition>({"get_current_worker_index"},
                                   [] { get_current_worker_index(); });
}

TEST_F(Coordinator, OnlyRegisteredFunctionsAreTaken) {  // K04
  expect_error<InvalidArgument>({"[schedule]", "not registered", "COHORT_REGISTER_FUNCTION"},
                                [&] { coordinator_.schedule(not_registered); });
}

template <class F, class... A>
concept Schedulable = requires(ClusterCoordinator& c, F f, const A&... args) {
  c.schedule(f, args...);
};

template <class T>
concept HasNext = requires(T& iterator) {
  iterator.next();
};

TEST_F(Coordinator, WrongArgumentsDoNotCompile) {  // K07
  using Function = Tensor (*)(const Tensor&, double);
  static_assert(Schedulable<Function, Tensor, double>);
  static_assert(!Schedulable<Function, RemoteValue<Tensor>, double>);
  static_assert(!Schedulable<Function, Tensor>);
  static_assert(!Schedulable<int (*)(Counter&), Counter>);
  static_assert(Schedulable<int (*)(Counter&), PerWorkerValues<Counter>>);
  // K12: there is no next() at the coordinator.
  static_assert(!HasNext<PerWorkerIterator>);
}

TEST_F(Coordinator, AnErrorIsThrownOnceAndIsOver) {  // K05
  const auto failed = coordinator_.schedule(fails, "too few rows");
  expect_error<InvalidArgument>({"too few rows", "on worker"}, [&] { coordinator_.join(); });
  coordinator_.join();
  EXPECT_TRUE(coordinator_.done());
  coordinator_.schedule(count_up);
  coordinator_.join();
  EXPECT_EQ(g_ran, 1);
  for (int again = 0; again < 2; ++again) {
    expect_error<InvalidArgument>({"too few rows"}, [&] { failed.get(); });
  }
  EXPECT_EQ(failed.status(), RemoteStatus::kAborted);
}

TEST_F(Coordinator, WhatWaitsBehindAnErrorIsCancelled) {  // K06
  const std::vector<RemoteValue<void>> first = {coordinator_.schedule(waits),
                                                coordinator_.schedule(waits)};
  wait_for_begun(2);  // both workers are busy
  const auto failed = coordinator_.schedule(fails, "in the middle");
  std::vector<RemoteValue<void>> behind;
  for (int i = 0; i < 100; ++i) behind.push_back(coordinator_.schedule(waits_longer));
  open(g_gate);
  expect_error<InvalidArgument>({"in the middle"}, [&] { failed.get(); });
  open(g_later_gate);
  expect_error<InvalidArgument>({"in the middle"}, [&] { coordinator_.join(); });
  for (const auto& each : first) EXPECT_EQ(each.status(), RemoteStatus::kReady);
  int cancelled = 0;
  for (const auto& each : behind) {
    try {
      each.get();
    } catch (const Cancelled& e) {
      ++cancelled;
      cohort::testing::expect_words(e.what(), {"cancelled", "schedule it again"});
    }
  }
  EXPECT_GE(cancelled, 98) << "the other worker has begun at most one or two";
  EXPECT_EQ(cancelled + g_ran, 100);
  coordinator_.join();
}

TEST_F(Coordinator, ForeignExceptionsAreUnknown) {
  const auto failed = coordinator_.schedule(fails_otherwise);
  expect_error(ErrorCode::kUnknown, {"of the program's own"}, [&] { failed.get(); });
  expect_error(ErrorCode::kUnknown, {"of the program's own"}, [&] { coordinator_.done(); });
}

TEST_F(Coordinator, ResourcesAreEachWorkersOwn) {
  const auto counter = coordinator_.create_per_worker_resource(make_counter, 5);
  EXPECT_EQ(g_made, 0) << "nobody needs it yet";
  int most = 0;
  for (int i = 0; i < 100; ++i) {
    most = std::max(most, coordinator_.schedule(count_on, counter).get());
  }
  EXPECT_GE(g_made, 1);
  EXPECT_LE(g_made, 2);
  EXPECT_GE(most, 250);
  EXPECT_EQ(most % 5, 0);
}

TEST_F(Coordinator, ErrorsOfResourcesAreThrownWhereTheyAreUsed) {
  const auto broken = coordinator_.create_per_worker_resource(make_fails, 1);
  coordinator_.schedule(count_up);
  coordinator_.join();  // nobody has used it
  coordinator_.schedule(count_on, broken);
  expect_error<InvalidArgument>({"cannot be made"}, [&] { coordinator_.join(); });
  const auto data =
      coordinator_.make_iterator(coordinator_.create_per_worker_dataset(make_no_data));
  coordinator_.schedule(next_number, data);
  expect_error<InvalidArgument>({"there is no file"}, [&] { coordinator_.join(); });
}

// A server that has not answered once says nothing of the next time.
TEST_F(Coordinator, WhatServersHaveKeptFromBeingMadeIsMadeWhenTheyAnswer) {
  g_tries_without_servers = 1000;
  const auto late = coordinator_.create_per_worker_resource(make_when_servers_answer, 5);
  coordinator_.schedule(count_on, late);
  expect_error<Unavailable>({"no server answers"}, [&] { coordinator_.join(); });
  g_tries_without_servers = 0;
  EXPECT_GE(coordinator_.schedule(count_on, late).get(), 5);
  coordinator_.join();
}

TEST_F(Coordinator, DatasetsAreEachWorkersOwn) {
  const auto numbers =
      coordinator_.make_iterator(coordinator_.create_per_worker_dataset(make_numbers, 3));
  std::multiset<int64_t> seen;
  try {
    while (true) seen.insert(coordinator_.schedule(next_number, numbers).get());
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutOfRange) << "its end is an ordinary error";
  }
  EXPECT_GE(seen.size(), 3U);
  EXPECT_GE(seen.count(0), 1U);
  EXPECT_THROW(coordinator_.join(), Error);
}

// A call that throws an earlier function's error schedules nothing.
TEST_F(Coordinator, WhatAnErrorKeepsOutIsNotScheduled) {  // semantics 7.5.3
  const auto failed = coordinator_.schedule(fails, "of before");
  expect_error<InvalidArgument>({"of before"}, [&] { failed.get(); });
  expect_error<InvalidArgument>({"of before"}, [&] { coordinator_.schedule(count_up); });
  coordinator_.join();
  EXPECT_EQ(g_ran, 0);
}

TEST_F(Coordinator, ThereIsOneForEachStrategy) {  // K11
  EXPECT_TRUE(ClusterCoordinator(strategy_) == coordinator_);
  EXPECT_TRUE(coordinator_.strategy() == strategy_);
  expect_error<InvalidArgument>({"ParameterServerStrategy", "MirroredStrategy"},
                                [] { ClusterCoordinator{MirroredStrategy()}; });
}

TEST_F(Coordinator, ALostServerIsNamedByAll) {  // K10
  const auto running = coordinator_.schedule(waits);
  wait_for_begun(1);
  cluster_.stop("ps", 0);
  for (int again = 0; again < 2; ++again) {
    expect_error<Unavailable>({"ps 0", "is lost"}, [&] { coordinator_.join(); });
  }
  expect_error<Unavailable>({"ps 0"}, [&] { running.get(); });
  expect_error<Unavailable>({"ps 0"}, [&] { coordinator_.schedule(count_up); });
  expect_error<Unavailable>({"ps 0"}, [&] { coordinator_.done(); });
  open(g_gate);
}

TEST_F(Coordinator, AServerThatBeginsAnewHasLostItsVariables) {
  cluster_.stop("ps", 0);
  cluster_.start("ps", 0);
  expect_error<Unavailable>({"ps 0"}, [&] {
    while (true) coordinator_.schedule(count_up);
  });
}

TEST_F(Coordinator, WhatRunsOnALostWorkerRunsAgain) {  // K09, within one process
  const auto counter = coordinator_.create_per_worker_resource(make_counter, 1);
  for (int i = 0; i < 200; ++i) coordinator_.schedule(count_on, counter).get();
  std::vector<RemoteValue<int>> all;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i) all.push_back(coordinator_.schedule(count_on, counter));
    cluster_.stop("worker", round % 2);
    cluster_.start("worker", round % 2);
  }
  coordinator_.join();
  for (const auto& each : all) EXPECT_GE(each.get(), 1);
}

// Bounded staleness, by the order of what happens: one worker holds a step.
class StaleCoordinator : public Coordinator {
 protected:
  ClusterCoordinator bounded_by(int bound) {
    return ClusterCoordinator(CoordinatedStrategy(other_.options(), bound));
  }
  TestCluster other_;
};

TEST_F(StaleCoordinator, NoWorkerIsFurtherAheadThanTheBound) {
  ClusterCoordinator coordinator = bounded_by(1);
  coordinator.schedule(waits);
  wait_for_begun(1);
  coordinator.schedule(count_held).get();
  coordinator.schedule(count_held).get();
  const auto evaluated = coordinator.schedule({.is_step = false}, which_worker);
  EXPECT_NE(evaluated.get(), -1) << "what is no step is not held up";
  std::vector<RemoteValue<void>> beyond;
  for (int i = 0; i < 8; ++i) beyond.push_back(coordinator.schedule(count_held));
  for (const auto& each : beyond) EXPECT_EQ(each.status(), RemoteStatus::kNotReady);
  open(g_gate);
  coordinator.join();
  EXPECT_EQ(g_ran, 10);
  EXPECT_EQ(g_ran_held, 2);
}

TEST_F(StaleCoordinator, AWorkerThatDiesHoldsNobodyUp) {
  ClusterCoordinator coordinator = bounded_by(0);
  coordinator.schedule(holds);
  wait_for_begun(1);
  coordinator.schedule(count_up).get();
  const auto beyond = coordinator.schedule(opens);
  EXPECT_EQ(beyond.status(), RemoteStatus::kNotReady);
  // Ends when its function does, which waits for the step that its loss lets go.
  other_.stop("worker", g_holder);
  beyond.get();
  coordinator.join();
  EXPECT_EQ(g_ran, 2);
  EXPECT_EQ(g_begun, 2) << "what it held has been run again";
}

TEST_F(StaleCoordinator, WithAnErrorAllGoesOnAsBefore) {
  ClusterCoordinator coordinator = bounded_by(0);
  coordinator.schedule(waits);
  wait_for_begun(1);
  const auto failed = coordinator.schedule(fails, "of a fast worker");
  expect_error<InvalidArgument>({"of a fast worker"}, [&] { failed.get(); });
  open(g_gate);
  expect_error<InvalidArgument>({"of a fast worker"}, [&] { coordinator.join(); });
  for (int i = 0; i < 100; ++i) coordinator.schedule(count_up);
  coordinator.join();
  EXPECT_EQ(g_ran, 100);
}

TEST(CoordinatorStart, ClustersWithoutWorkersOrServersAreRefused) {  // K13
  expect_error<InvalidArgument>({"at least one worker"}, [] {
    internal::coordinator::ClusterConnection({.spec = ClusterSpec({{"ps", {"127.0.0.1:1"}}})});
  });
  expect_error<InvalidArgument>({"at least one ps"}, [] {
    internal::coordinator::ClusterConnection({.spec = ClusterSpec({{"worker", {"127.0.0.1:1"}}})});
  });
}

TEST(CoordinatorStart, WaitsForATaskThatIsMissing) {
  const ClusterSpec spec = cohort::testing::loopback_cluster(1, 1);
  expect_error<DeadlineExceeded>({"ps 0", "has not come"}, [&] {
    internal::coordinator::ClusterConnection(
        {.spec = spec, .start_timeout = std::chrono::milliseconds(1)});
  });
  const Server ps(spec, {.job_name = "ps", .task_index = 0});
  std::latch begun(1);
  std::thread late([&] {
    begun.wait();
    Server(spec, {.job_name = "worker", .task_index = 0}).join();
  });
  {
    std::thread opener([&] { begun.count_down(); });
    const CoordinatedStrategy strategy({.spec = spec});
    opener.join();
    EXPECT_EQ(ClusterCoordinator(strategy).schedule(which_worker).get(), 0);
  }  // the worker is told that the job is over
  late.join();
}

TEST(CoordinatorServer, WrongTasksAreRefused) {
  const ClusterSpec spec({{"worker", {"127.0.0.1:0"}}, {"chief", {"127.0.0.1:0"}}});
  expect_error<InvalidArgument>({"job_name"}, [&] { Server{spec}; });
  expect_error<InvalidArgument>({"chief"}, [&] { Server(spec, {.job_name = "chief"}); });
  expect_error<InvalidArgument>({"grpc"}, [&] { Server(spec, {.protocol = "http"}); });
  EXPECT_EQ(Server(spec, {.job_name = "worker"}).target().rfind("grpc://127.0.0.1:", 0), 0U);
}

}  // namespace
}  // namespace cohort
