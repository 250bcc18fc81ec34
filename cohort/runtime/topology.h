// SPDX-License-Identifier: Apache-2.0
//
// What this process may use of the machine.
#pragma once

#include <limits>
#include <string>

namespace cohort::internal::runtime {

inline constexpr double kNoQuota = std::numeric_limits<double>::infinity();

/// The least of CPU affinity, cgroup quota and physical cores; at least 1. Read once.
int usable_cores();

/// The same with the quota as it is, 1.5 or 0.5 cores: how much of threads' time can be had.
double usable_cpu_time();

/// The cores that threads may run on at the same time, whatever a quota says of how long: the least
/// of CPU affinity and physical cores.
int cores_at_once();

/// Equal in processes that share their cores: those of one machine and container, with the same
/// affinity.
std::string cores_identity();

/// The CPU time that cgroups (v1 and v2, the least of ours and all above) allow per second, or
/// kNoQuota. `root` is where proc and sys/fs/cgroup lie. Files that say nothing are no quota.
double cgroup_quota(const std::string& root);

/// Threads for a quota: rounded up. A whole core more than the quota is throttled now and then, one
/// less never uses what is paid for (docs/benchmarks.md has the measurement).
int cores_of_quota(double quota, int otherwise);

}  // namespace cohort::internal::runtime
