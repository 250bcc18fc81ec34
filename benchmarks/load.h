// SPDX-License-Identifier: Apache-2.0
//
// What takes cores away from a contender: other processes that compute, or a cgroup's quota.
//
//   BusyProcesses two(2);             // until the end of the scope
//   CpuQuota half(0.5);
//   half.enter(); ...start a process, which is born inside...; half.leave();
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cohort::bench {

/// So many processes that do nothing but compute, at the usual priority.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count);
  ~BusyProcesses();
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> processes_;
};

/// A cgroup (v1 or v2, as the machine has it) that may use so many cores' time. Threads: one.
/// The destructor removes the group; whoever was inside has to have ended.
class CpuQuota {
 public:
  /// Errors: Unavailable, with the reason, where no quota can be set (no right, no controller).
  explicit CpuQuota(double cores);
  ~CpuQuota();
  CpuQuota(const CpuQuota&) = delete;
  CpuQuota& operator=(const CpuQuota&) = delete;

  /// Takes this process inside, so that those it starts are born there, and out again.
  void enter();
  void leave();

 private:
  std::string group_;   ///< The new group's folder.
  std::string before_;  ///< The one that this process comes from.
};

}  // namespace cohort::bench
