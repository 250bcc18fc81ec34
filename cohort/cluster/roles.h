// SPDX-License-Identifier: Apache-2.0
//
// Who is who in a cluster, as TensorFlow's multi_worker_util has it.
#pragma once

#include <string>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/cluster_spec.h"

namespace cohort::internal::cluster {

/// A task of a cluster.
struct TaskName {
  std::string type = {};
  int id = 0;
};

/// Errors: InvalidArgument for jobs other than chief, worker, ps and evaluator, for more than one
///         chief or evaluator, and for a task that is not there (evaluators may be missing).
/// `source`: the variable whose JSON says it, of which the text names the position then.
void check_cluster(const ClusterSpec& spec, const TaskName& task, const std::string& source = {});
/// "TF_CONFIG" or "CLUSTER_SPEC" of a resolver that reads them; else "".
std::string variable_of(const ClusterResolver& resolver);
/// The chief, worker 0 where there is none, and every evaluator. Errors: as check_cluster().
bool is_chief(const ClusterSpec& spec, const TaskName& task);
/// The chief and the workers; of an evaluator the evaluators.
/// Errors: as check_cluster(); InvalidArgument for ps.
int worker_count(const ClusterSpec& spec, const TaskName& task);
/// The chief is 0, workers come after it. Errors: as worker_count().
int id_in_cluster(const ClusterSpec& spec, const TaskName& task);
/// Of the chief and the workers, in the order of id_in_cluster().
/// Errors: InvalidArgument if an index is missing.
std::vector<std::string> worker_addresses(const ClusterSpec& spec);

}  // namespace cohort::internal::cluster
