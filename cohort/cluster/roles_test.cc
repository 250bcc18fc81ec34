// SPDX-License-Identifier: Apache-2.0
#include "cohort/cluster/roles.h"

#include <gtest/gtest.h>

#include <tuple>

#include "cohort/testing/expect_error.h"

namespace cohort::internal::cluster {
namespace {

using testing::expect_error;

// Case M01, and its like without a chief.
TEST(Roles, OfAChiefAndItsWorkers) {
  const ClusterSpec spec({{"chief", {"a:1"}}, {"worker", {"b:1", "c:1"}}, {"ps", {"d:1"}}});
  EXPECT_TRUE(is_chief(spec, {"chief", 0}));
  EXPECT_FALSE(is_chief(spec, {"worker", 0}));
  EXPECT_EQ(id_in_cluster(spec, {"chief", 0}), 0);
  EXPECT_EQ(id_in_cluster(spec, {"worker", 1}), 2);
  EXPECT_EQ(worker_count(spec, {"worker", 1}), 3);
  EXPECT_EQ(worker_addresses(spec), (std::vector<std::string>{"a:1", "b:1", "c:1"}));
}

TEST(Roles, WithoutAChiefWorkerZeroIsIt) {
  const ClusterSpec spec({{"worker", {"b:1", "c:1"}}});
  EXPECT_TRUE(is_chief(spec, {"worker", 0}));
  EXPECT_FALSE(is_chief(spec, {"worker", 1}));
  EXPECT_EQ(id_in_cluster(spec, {"worker", 1}), 1);
}

TEST(Roles, AnEvaluatorIsAClusterOfItsOwn) {
  const ClusterSpec spec({{"worker", {"b:1", "c:1"}}});
  EXPECT_TRUE(is_chief(spec, {"evaluator", 0}));
  EXPECT_EQ(worker_count(spec, {"evaluator", 0}), 1);
}

// Case M03, and the others of TensorFlow's texts.
TEST(Roles, RefuseWhatIsNoCluster) {
  const ClusterSpec three({{"worker", {"a:1", "b:1", "c:1"}}});
  expect_error<InvalidArgument>({"There must be at most one 'chief' job."}, [] {
    check_cluster(ClusterSpec({{"chief", {"a:1", "b:1"}}}), {"chief", 0});
  });
  expect_error<InvalidArgument>({"There must be at most one 'evaluator' job."}, [] {
    check_cluster(ClusterSpec({{"worker", {"w:1"}}, {"evaluator", {"a:1", "b:1"}}}), {"worker", 0});
  });
  expect_error<InvalidArgument>({"Disallowed task type found in cluster spec", "foo"}, [] {
    check_cluster(ClusterSpec({{"foo", {"a:1"}}}), {"worker", 0});
  });
  expect_error<InvalidArgument>({"Unrecognized task_type: foo"}, [&] {
    check_cluster(three, {"foo", 0});
  });
  expect_error<InvalidArgument>({"`task_type` 'chief' not found in cluster_spec"}, [&] {
    check_cluster(three, {"chief", 0});
  });
  expect_error<InvalidArgument>({"The `task_id` 5 exceeds the maximum id of worker"}, [&] {
    check_cluster(three, {"worker", 5});
  });
  // Where a variable says it, its position is named.
  for (const auto& [spec, task, place] :
       {std::tuple(ClusterSpec({{"foo", {"a:1"}}}), TaskName{"worker", 0}, "TF_CONFIG.cluster.foo"),
        std::tuple(ClusterSpec({{"chief", {"a:1", "b:1"}}}), TaskName{"chief", 0},
                   "TF_CONFIG.cluster.chief"),
        std::tuple(three, TaskName{"foo", 0}, "TF_CONFIG.task.type"),
        std::tuple(three, TaskName{"chief", 0}, "TF_CONFIG.task.type"),
        std::tuple(three, TaskName{"worker", 5}, "TF_CONFIG.task.index")}) {
    expect_error<InvalidArgument>(
        {place}, [&, &spec = spec, &task = task] { check_cluster(spec, task, "TF_CONFIG"); });
  }
  expect_error<InvalidArgument>({"There is no id for task_type 'ps'"}, [] {
    id_in_cluster(ClusterSpec({{"ps", {"a:1"}}}), {"ps", 0});
  });
  expect_error<InvalidArgument>({"Unexpected `task_type` 'ps'"}, [] {
    worker_count(ClusterSpec({{"ps", {"a:1"}}}), {"ps", 0});
  });
  expect_error<InvalidArgument>({"addresses of all tasks", "'worker'"}, [] {
    worker_addresses(ClusterSpec::sparse({{"worker", {{1, "b:1"}}}}));
  });
}

}  // namespace
}  // namespace cohort::internal::cluster
