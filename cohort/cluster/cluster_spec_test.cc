// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/cluster_spec.h"

#include <gtest/gtest.h>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using Texts = std::vector<std::string>;

TEST(ClusterSpec, KnowsItsTasks) {
  const ClusterSpec spec({{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}});
  EXPECT_EQ(spec.jobs(), (Texts{"chief", "worker"}));
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(spec.task_address("worker", 1), "c:1");
  EXPECT_EQ(spec.job_tasks("worker"), (Texts{"b:1", "c:1"}));
  EXPECT_EQ(spec.to_string(), "ClusterSpec(chief: [a:1], worker: [b:1, c:1])");
  EXPECT_TRUE(ClusterSpec().empty());
}

TEST(ClusterSpec, MayHaveGaps) {
  const ClusterSpec spec = ClusterSpec::sparse({{"worker", {{1, "b:1"}, {3, "d:1"}}}});
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(spec.task_indices("worker"), (std::vector<int>{1, 3}));
  EXPECT_EQ(spec.job_tasks("worker"), (Texts{"", "b:1", "", "d:1"}));
  EXPECT_EQ(spec.to_string(), "ClusterSpec(worker: {1: b:1, 3: d:1})");
  EXPECT_EQ(ClusterSpec::sparse({{"worker", {{0, "a"}, {1, "b"}}}}),
            ClusterSpec({{"worker", {"a", "b"}}}));
}

TEST(ClusterSpec, RefusesWhatIsNotThere) {
  const ClusterSpec spec({{"worker", {"b:1"}}});
  expect_error<InvalidArgument>({"No such job in cluster: 'ps'"}, [&] { spec.num_tasks("ps"); });
  expect_error<InvalidArgument>({"No task with index 5 in job 'worker'"},
                                [&] { spec.task_address("worker", 5); });
  expect_error<InvalidArgument>({"'worker'", "got -1"}, [] {
    ClusterSpec::sparse({{"worker", {{-1, "a:1"}}}});
  });
}

std::shared_ptr<ClusterResolver> simple(ClusterSpec spec, TaskOptions task = {}) {
  return std::make_shared<SimpleClusterResolver>(std::move(spec), std::move(task));
}

TEST(SimpleClusterResolver, SaysWhatItWasTold) {
  const SimpleClusterResolver resolver(
      ClusterSpec({{"worker", {"a:1", "b:1"}}}),
      {.task_type = "worker", .task_id = 1, .rpc_layer = "grpc", .environment = "cloud"},
      {{"GPU", 4}});
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 2);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.environment(), "cloud");
  EXPECT_EQ(resolver.master(), "grpc://b:1");
  EXPECT_EQ(resolver.master({.task_id = 0, .rpc_layer = ""}), "a:1");
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 4);
  EXPECT_EQ(SimpleClusterResolver(ClusterSpec()).master(), "");
}

// Case R02.
TEST(UnionResolver, JoinsLists) {
  const UnionResolver both({simple(ClusterSpec({{"worker", {"a", "b"}}})),
                            simple(ClusterSpec({{"worker", {"c"}}, {"ps", {"d"}}}))});
  EXPECT_EQ(both.cluster_spec(), ClusterSpec({{"worker", {"a", "b", "c"}}, {"ps", {"d"}}}));
}

TEST(UnionResolver, JoinsByIndexWhereOneHasGaps) {
  const auto list = simple(ClusterSpec({{"worker", {"a", "b"}}}));
  const UnionResolver both({list, simple(ClusterSpec::sparse({{"worker", {{5, "f"}}}}))});
  EXPECT_EQ(both.cluster_spec().task_indices("worker"), (std::vector<int>{0, 1, 5}));
  const UnionResolver clash(
      {list, simple(ClusterSpec::sparse({{"worker", {{1, "x"}, {4, "y"}}}}))});
  expect_error<InvalidArgument>({"Duplicate keys", "1", "'worker'"}, [&] { clash.cluster_spec(); });
}

TEST(UnionResolver, TakesTheTaskOfTheFirst) {
  const auto first = simple(ClusterSpec({{"worker", {"a", "b"}}}),
                            {.task_type = "worker", .task_id = 1, .rpc_layer = "grpc"});
  const auto second = simple(ClusterSpec(), {.task_type = "ps", .task_id = 3});
  const UnionResolver both({first, second});
  EXPECT_EQ(both.task_type(), "worker");
  EXPECT_EQ(both.task_id(), 1);
  EXPECT_EQ(both.master(), "grpc://b");
  // TensorFlow takes an explicit 0 for none.
  EXPECT_EQ(UnionResolver({first, second}, {.task_id = 0}).task_id(), 0);
}

TEST(UnionResolver, NeedsResolvers) {
  expect_error<InvalidArgument>({"At least one ClusterResolver is required"},
                                [] { UnionResolver({}); });
  expect_error<InvalidArgument>({"nullptr"}, [] { UnionResolver({nullptr}); });
}

}  // namespace
}  // namespace cohort
