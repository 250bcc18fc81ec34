// SPDX-License-Identifier: Apache-2.0
//
// What travels between a coordinator and its workers beside functions, datasets and nests of
// results, and the coordinator's settings: semantics 7.4, 7.6 and 7.7.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using cohort::testing::comes_true;
using cohort::testing::CoordinatedStrategy;
using cohort::testing::expect_error;
using cohort::testing::TestCluster;

struct Pair {
  int two = 0;
  std::vector<int> list = {};
};
Pair a_pair() { return {2, {3}}; }
int64_t next_of(DistributedIterator& numbers) {
  return numbers.get_next().local().as<Tensor>().item<int64_t>();
}
Dataset make_three() { return Dataset::range(3); }
int here() { return get_current_worker_index(); }
Tensor times(const Tensor& x, double by) { return x * by; }
int64_t sum_of(Dataset& numbers) {
  int64_t sum = 0;
  for (const Element& each : numbers) sum += each.tensor().item<int64_t>();
  return sum;
}
Dataset make_data_and_variable() {
  const Variable v(1.0, {.name = "of_data"});
  return Dataset::range(3);
}

std::atomic<int> g_timeouts{0};
int times_out(int times) {
  if (++g_timeouts <= times) throw DeadlineExceeded("too late");
  return g_timeouts;
}

COHORT_REGISTER_FUNCTION(a_pair);
COHORT_REGISTER_FUNCTION(next_of);
COHORT_REGISTER_FUNCTION(make_three);
COHORT_REGISTER_FUNCTION(here);
COHORT_REGISTER_FUNCTION(times);
COHORT_REGISTER_FUNCTION(sum_of);
COHORT_REGISTER_FUNCTION(make_data_and_variable);
COHORT_REGISTER_FUNCTION(times_out);

class SentData : public ::testing::Test {
 protected:
  TestCluster cluster_;
  CoordinatedStrategy strategy_{cluster_.options()};
  ClusterCoordinator coordinator_{strategy_};
};

// A pipeline of the coordinator's: its elements travel.
TEST_F(SentData, ADatasetOfTheCoordinatorsIsEachWorkers) {
  const auto numbers = coordinator_.create_per_worker_dataset(Dataset::range(0, 50, 10));
  EXPECT_EQ(coordinator_.element_spec(numbers).to_string(), "int64[]");
  const auto rows = coordinator_.make_iterator(numbers);
  std::multiset<int64_t> seen;
  for (int i = 0; i < 5; ++i) seen.insert(coordinator_.schedule(next_of, rows).get());
  EXPECT_GE(seen.count(0), 1U);
  for (const int64_t each : seen) EXPECT_TRUE(each % 10 == 0 && each <= 40) << each;
  EXPECT_EQ(coordinator_.schedule(sum_of, numbers).get(), 100) << "all of them, on each";
  expect_error<InvalidArgument>({"at most 54 MiB", "registered function"}, [&] {
    coordinator_.create_per_worker_dataset(Dataset::from_tensors(ones({1 << 20})).repeat());
  });
  const auto made = coordinator_.create_per_worker_dataset(make_three);
  EXPECT_EQ(coordinator_.element_spec(made).to_string(), "int64[]");
}

TEST_F(SentData, ADatasetsFunctionMakesNoVariables) {
  const auto data = coordinator_.create_per_worker_dataset(make_data_and_variable);
  expect_error<InvalidArgument>({"makes no variables", "\"of_data\""},
                                [&] { coordinator_.element_spec(data); });
  EXPECT_THROW(coordinator_.join(), InvalidArgument);
}

TEST_F(SentData, FetchGivesANestOfValues) {
  const auto four = coordinator_.schedule(times, full({}, 2), 2);
  const std::map<std::string, std::vector<RemoteValue<Tensor>>> table = {{"all", {four, four}}};
  const auto [number, inner] =
      coordinator_.fetch(std::tuple(7, std::pair(coordinator_.schedule(a_pair), table)));
  EXPECT_EQ(number, 7);
  EXPECT_EQ(inner.first.two, 2);
  ASSERT_EQ(inner.second.at("all").size(), 2U);
  EXPECT_EQ(inner.second.at("all")[1].item<double>(), 4);
}

class CoordinatorSettings : public ::testing::Test {
 protected:
  CoordinatorSettings() { g_timeouts = 0; }
  ~CoordinatorSettings() override {
    for (const std::string& each : set_) ::unsetenv(each.c_str());
  }
  void set(const std::string& name, const char* value) {
    ::setenv(name.c_str(), value, 1);
    set_.push_back(name);
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(CoordinatorSettings, TimeoutsThatPassAreRunAgain) {
  set("TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", "2");
  const TestCluster cluster;
  const CoordinatedStrategy strategy(cluster.options());
  ClusterCoordinator coordinator(strategy);
  EXPECT_EQ(coordinator.schedule(times_out, 2).get(), 3) << "the third time";
  g_timeouts = 0;
  expect_error<DeadlineExceeded>({"too late"}, [&] { coordinator.schedule(times_out, 1).get(); });
  EXPECT_EQ(g_timeouts, 1) << "two have passed already";
}

TEST_F(CoordinatorSettings, LaterWorkersBeginLater) {
  set("TF_COORDINATOR_SCHEDULE_START_DELAY", "3600");
  const TestCluster cluster;
  {
    const CoordinatedStrategy strategy(cluster.options());
    ClusterCoordinator coordinator(strategy);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(coordinator.schedule(here).get(), 0);
  }  // which waits for no such time
  set("TF_COORDINATOR_SCHEDULE_START_DELAY_MAX", "0.001");
  const CoordinatedStrategy strategy(cluster.options());
  ClusterCoordinator coordinator(strategy);
  EXPECT_TRUE(comes_true([&] { return coordinator.schedule(here).get() > 0; }));
}

// There are three within a tenth of a second.
TEST_F(CoordinatorSettings, AServerIsLostBehindSoManyFailures) {
  const auto lose_server = [](const auto& and_then) {
    TestCluster cluster;
    auto options = cluster.options();
    options.heartbeat = std::chrono::milliseconds(20);
    const CoordinatedStrategy strategy(options);
    ClusterCoordinator coordinator(strategy);
    cluster.stop("ps", 0);
    and_then(coordinator);
  };
  set("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", "1000000");
  lose_server([](ClusterCoordinator& coordinator) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    coordinator.schedule(here).get();
  });
  set("TF_COORDINATOR_IGNORE_TRANSIENT_PS_FAILURES", "1");
  lose_server([](ClusterCoordinator& coordinator) {
    expect_error<Unavailable>({"ps 0", "is lost"}, [&] {
      EXPECT_FALSE(comes_true([&] { return coordinator.schedule(here).get() < 0; }));
    });
  });
}

TEST_F(CoordinatorSettings, WhatIsNoNumberIsRefused) {
  for (const char* name :
       {"TF_COORDINATOR_IGNORE_TRANSIENT_TIMEOUTS", "TF_CLUSTER_COORDINATOR_WATCH_DOG_TIMEOUT"}) {
    set(name, "soon");
    const TestCluster cluster;
    const CoordinatedStrategy strategy(cluster.options());
    expect_error<InvalidArgument>({name, "\"soon\""}, [&] { ClusterCoordinator{strategy}; });
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace cohort
