// SPDX-License-Identifier: Apache-2.0
//
// Clusters and several workers: C34, M01, M03, R02 and R04. The workers are strategies of one
// process.
#include "cohort/cluster/environment.h"
#include "cohort/cluster/roles.h"
#include "cohort/cluster/test_variables.h"
#include "cohort/strategy/multi_worker_mirrored.h"
#include "cohort/strategy/test_workers.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

using internal::cluster::TaskName;
using testing::JobVariables;
using testing::Workers;

CONFORMANCE(C34_APlainNumberOfEachWorker) {
  const auto reduced = [](ReduceOp op) {
    return Workers(2, 1).run([&](const Strategy& strategy) { return strategy.reduce(op, 1.0); });
  };
  return show(reduced(ReduceOp::kSum), reduced(ReduceOp::kMean));
}

/// The task that leads the others' collectives: the one that is the chief.
std::string leader_of(const ClusterSpec& spec) {
  for (const char* job : {"chief", "worker"}) {
    if (!spec.has_job(job)) continue;
    for (const int id : spec.task_indices(job)) {
      if (!internal::cluster::is_chief(spec, {job, id})) continue;
      return str_cat("/job:", job, "/replica:0/task:", id);
    }
  }
  return {};
}

CONFORMANCE(M01_TheRolesOfAChiefAndTwoWorkers) {
  const JobVariables variables{{"TF_CONFIG", R"({
      "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
      "task": {"type": "worker", "index": 1}})"}};
  const ClusterSpec spec = TFConfigClusterResolver().cluster_spec();
  const TaskName worker{"worker", 1};
  return show(internal::cluster::id_in_cluster(spec, {"chief", 0}),
              internal::cluster::id_in_cluster(spec, worker), leader_of(spec),
              internal::cluster::worker_count(spec, worker));
}

CONFORMANCE(M03_WhatIsNoCluster) {
  const auto checked = [](const ClusterSpec& spec, const TaskName& task) {
    return outcome([&] { internal::cluster::check_cluster(spec, task); });
  };
  return show(checked(ClusterSpec({{"chief", {"a:1", "b:1"}}}), {"chief", 0}),
              checked(ClusterSpec({{"foo", {"a:1"}}}), {"worker", 0}),
              checked(ClusterSpec({{"worker", {"a:1", "b:1", "c:1"}}}), {"worker", 5}));
}

CONFORMANCE(R02_AUnionOfTwo) {
  const auto simple = [](const ClusterSpec& spec) {
    return std::make_shared<SimpleClusterResolver>(spec);
  };
  const UnionResolver both({simple(ClusterSpec({{"worker", {"a", "b"}}})),
                            simple(ClusterSpec({{"worker", {"c"}}, {"ps", {"d"}}}))});
  const ClusterSpec spec = both.cluster_spec();
  return show(spec.job_tasks("worker"), spec.job_tasks("ps"));
}

CONFORMANCE(R04_NobodySaysThatThereIsACluster) {
  const JobVariables none{};
  const MultiWorkerMirroredStrategy strategy;
  return show(strategy.num_replicas_in_sync(), strategy.extended().layout().workers(),
              strategy.extended().should_checkpoint());
}

}  // namespace
}  // namespace cohort::conformance
