// SPDX-License-Identifier: Apache-2.0
//
// Functions with ids, over real connections to servers and workers that are threads of this
// process; tests/parameter_servers kills a real coordinator.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/failpoint.h"
#include "cohort/base/strings.h"
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/coordinator/cluster_coordinator.h"
#include "cohort/coordinator/parameter_server_strategy.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/coordinator/test_cluster.h"
#include "cohort/rpc/client.h"
#include "cohort/rpc/wire.h"
#include "cohort/testing/comes_true.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TestCluster;

double read_and_add(const Variable& v) { return v.assign_add(scalar(1)).item<double>(); }
double fail_behind(const Variable& v) {
  v.assign_add(full(v.shape(), 1000));
  throw InvalidArgument("as it is meant to");
}
double give_back(double x) { return x; }
std::atomic<bool> g_holds_worker{false};
void hold_worker() {
  while (g_holds_worker) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
COHORT_REGISTER_FUNCTION(hold_worker);
COHORT_REGISTER_FUNCTION(read_and_add);
COHORT_REGISTER_FUNCTION(fail_behind);
COHORT_REGISTER_FUNCTION(give_back);

// Two programs, one after the other, of one journal, while servers and workers live.
class JournaledFunctions : public ::testing::Test {
 protected:
  JournaledFunctions() { std::filesystem::remove_all(folder_); }
  ~JournaledFunctions() override {
    internal::base::g_fault_hook = nullptr;
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(killed_);
  }
  ParameterServerStrategy strategy() const { return strategy(folder_); }
  ParameterServerStrategy strategy(const std::string& folder) const {
    return ParameterServerStrategy(
        {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster_.spec()),
         .journal = JournalOptions{.folder = folder}});
  }
  /// The journal as it would be if the program were killed here.
  std::string killed() const {
    std::filesystem::remove_all(killed_);
    std::filesystem::copy(folder_, killed_);
    return killed_;
  }
  TestCluster cluster_{1, 2};
  const std::string folder_ = str_cat(::testing::TempDir(), "cohort_named_", ::getpid());
  const std::string killed_ = folder_ + "_killed";
};

Variable made_by(const Strategy& strategy, double value) {
  const auto scope = strategy.scope();
  return Variable(scalar(value), {.name = "v"});
}

// The second program ends between its first word to the servers and that the journal forgets.
int g_replaced = 0;
int fail_to_replace(const char* call, const std::string& path) {
  const bool is_journal = path.find("_killed/journal") != std::string::npos;
  if (is_journal && std::string(call) == "lock" && ++g_replaced == 2) {
    throw Internal("the disk is full");
  }
  return 0;
}

TEST_F(JournaledFunctions, AnEmptyServerThatWasOnlyGreetedIsNotResumed) {
  const ParameterServerStrategy first = strategy();
  ClusterCoordinator coordinator(first);
  const Variable v = made_by(first, 5);
  coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v));
  const std::string folder = killed();
  cluster_.stop("ps", 1);
  cluster_.start("ps", 1);
  internal::base::g_fault_hook = &fail_to_replace;
  expect_error<Internal>({"the disk is full"}, [&] { strategy(folder); });
  internal::base::g_fault_hook = nullptr;
  const ParameterServerStrategy third = strategy(folder);
  EXPECT_FALSE(ClusterCoordinator(third).resumed());
}

TEST_F(JournaledFunctions, VariablesOfBeforeEndWithTheResumedProgramsLastHandle) {
  const ParameterServerStrategy first = strategy();
  ClusterCoordinator coordinator(first);
  const Variable v = made_by(first, 5);
  coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v));
  const ParameterServerStrategy second = strategy(killed());
  EXPECT_TRUE(ClusterCoordinator(second).resumed());
  EXPECT_EQ(made_by(second, 50).value().item<double>(), 6);
  EXPECT_EQ(made_by(second, 70).value().item<double>(), 70) << "another one";
}

// It stands still while another one begins, where the journal's lock does not hold, and goes on.
TEST_F(JournaledFunctions, AChiefThatWasFollowedIsRefused) {
  const ParameterServerStrategy first = strategy();
  ClusterCoordinator coordinator(first);
  const Variable v = made_by(first, 5);
  coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v));
  const ParameterServerStrategy second = strategy(killed());
  const Variable w = made_by(second, 50);
  const auto refused = [](const auto& work) {
    expect_error<Error>({"expected the newest chief", "chief 1", "chief has begun as number 2"},
                        work);
  };
  refused([&] { v.assign_add(scalar(1)); });
  refused([&] { v.value(); });
  refused([&] { coordinator.fetch(coordinator.schedule(read_and_add, v)); });
  refused([&] { coordinator.join(); });
  EXPECT_EQ(w.value().item<double>(), 6);
  ClusterCoordinator next(second);
  EXPECT_EQ(next.fetch(next.schedule_exactly_once({.id = "b"}, read_and_add, w)), 6);
}

// It would not know what the one behind it has ended.
TEST_F(JournaledFunctions, AJournalThatHasMissedAChiefIsRefused) {
  const ParameterServerStrategy first = strategy();
  ClusterCoordinator coordinator(first);
  const Variable v = made_by(first, 5);
  coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v));
  const std::string old = folder_ + "_old";
  std::filesystem::rename(killed(), old);
  const ParameterServerStrategy second = strategy(killed());
  expect_error<FailedPrecondition>(
      {"[journal]", "chief, number 2", "ends with chief 1", "old copy"}, [&] { strategy(old); });
  std::filesystem::remove(old + "/journal");
  const ParameterServerStrategy anew = strategy(old);
  EXPECT_FALSE(ClusterCoordinator(anew).resumed()) << "as the error says";
  std::filesystem::remove_all(old);
}

// All that have heard of the chiefs before are workers.
TEST(CoordinatorStart, FollowsAChiefOfWhichNewServersDoNotKnow) {
  TestCluster cluster(1, 1);
  const auto begin = [&] {
    return ParameterServerStrategy(
        {.cluster_resolver = std::make_shared<SimpleClusterResolver>(cluster.spec())});
  };
  begin();
  begin();
  cluster.stop("ps", 0);
  cluster.start("ps", 0);
  const ParameterServerStrategy third = begin();
  EXPECT_EQ(made_by(third, 5).value().item<double>(), 5);
}

// Whether the directory, which is on the first server, has one of this name.
bool is_there(const ClusterSpec& spec, const std::string& name) {
  internal::rpc::RpcClient client(
      {.address = spec.task_address("ps", 0), .claims = {.task = "test", .generation = 1}});
  internal::rpc::MessageWriter out;
  out.text(name);
  try {
    client.call("ps.find", internal::coordinator::message(out));
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

// A program that ends, and one that goes on, are told apart by what comes behind the last handle.
TEST_F(JournaledFunctions, AVariableEndsWhenTheProgramGoesOn) {
  const ParameterServerStrategy with_journal = strategy();
  ClusterCoordinator coordinator(with_journal);
  made_by(with_journal, 1);
  EXPECT_TRUE(is_there(cluster_.spec(), "v"));
  coordinator.schedule(give_back, 2.0);
  // It is told by another thread.
  ASSERT_TRUE(testing::comes_true([&] { return !is_there(cluster_.spec(), "v"); }));
  EXPECT_EQ(made_by(with_journal, 3).value().item<double>(), 3);
  EXPECT_EQ(made_by(with_journal, 4).value().item<double>(), 4);
  EXPECT_TRUE(is_there(cluster_.spec(), "v"));
}

TEST_F(JournaledFunctions, AreFoundByTheirIds) {
  {
    const ParameterServerStrategy first = strategy();
    ClusterCoordinator coordinator(first);
    EXPECT_FALSE(coordinator.resumed());
    const auto scope = first.scope();
    const Variable v(scalar(5), {.name = "v"});
    const auto a = coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v);
    const auto again = coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v);
    EXPECT_EQ(coordinator.fetch(a), 5);
    EXPECT_EQ(coordinator.fetch(again), 5);
    EXPECT_EQ(coordinator.fetch(coordinator.schedule({.id = "b"}, give_back, 2.0)), 2);
    coordinator.schedule_exactly_once({.id = "c"}, fail_behind, v);
    EXPECT_THROW(coordinator.join(), Error);
    EXPECT_EQ(v.value().item<double>(), 6);
  }
  const ParameterServerStrategy second = strategy();
  ClusterCoordinator coordinator(second);
  EXPECT_TRUE(coordinator.resumed());
  const auto scope = second.scope();
  // The program before has ended, but might have been killed behind its variables' ends.
  const Variable v(scalar(50), {.name = "v"});
  EXPECT_EQ(coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v)), 5);
  EXPECT_EQ(coordinator.fetch(coordinator.schedule({.id = "b"}, give_back, 2.0)), 2);
  EXPECT_EQ(v.value().item<double>(), 6);
  expect_error<FailedPrecondition>({"\"b\"", "give_back with", "checksum"},
                                   [&] { coordinator.schedule({.id = "b"}, give_back, 3.0); });
  expect_error<FailedPrecondition>({"\"a\"", "read_and_add with", "fail_behind with"}, [&] {
    coordinator.schedule_exactly_once({.id = "a"}, fail_behind, v);
  });
  const auto thrown = coordinator.schedule_exactly_once({.id = "c"}, fail_behind, v);
  expect_error<Error>({"as it is meant to"}, [&] { thrown.get(); });
  EXPECT_THROW(coordinator.join(), Error);
  coordinator.forget_finished();
  EXPECT_EQ(coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v)), 6);
}

// Threads that wait for the same place look again who was before them.
TEST_F(JournaledFunctions, AreOneFunctionBehindAFullQueue) {
  const ParameterServerStrategy with_journal = strategy();
  ClusterCoordinator coordinator(with_journal);
  const auto scope = with_journal.scope();
  const Variable v(scalar(0), {.name = "v"});
  g_holds_worker = true;
  coordinator.schedule(hold_worker);
  constexpr int kCapacity = 256 * 1024;
  std::atomic<int> scheduled{0};
  std::thread filler([&] {
    for (int i = 0; i < kCapacity + 300; ++i, ++scheduled) coordinator.schedule(give_back, 1.0);
  });
  while (scheduled < kCapacity - 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until it waits
  std::array<double, 2> got = {-1, -1};
  const auto add = [&](double& out) {
    out = coordinator.fetch(coordinator.schedule_exactly_once({.id = "a"}, read_and_add, v));
  };
  std::thread one([&] { add(got[0]); });
  std::thread two([&] { add(got[1]); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the same
  g_holds_worker = false;
  for (std::thread* each : {&filler, &one, &two}) each->join();
  coordinator.join();
  EXPECT_EQ(got, (std::array<double, 2>{0, 0}));
  EXPECT_EQ(v.value().item<double>(), 1);
}

}  // namespace
}  // namespace cohort
