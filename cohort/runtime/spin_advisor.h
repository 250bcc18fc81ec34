// SPDX-License-Identifier: Apache-2.0
//
// Whether intra-op threads may spin while they wait: they save a wake-up on a quiet machine, and
// take the core from whom they wait for on a busy one.
#pragma once

#include <cstdint>

namespace cohort::internal::runtime {

/// What a process has used up and how often a thread of it had to leave a core that it still
/// wanted.
struct CoreUse {
  double cpu_seconds = 0;
  int64_t preemptions = 0;
};

/// Decides by how often threads are preempted per second of their own CPU time. Alone on its cores
/// a process is preempted some tens of times, by short work of the system; a thread that shares its
/// core has to leave it after every slice, hundreds of times.
/// Threads: bound to one at a time.
class SpinAdvisor {
 public:
  /// Looked at in windows of so much CPU time.
  static constexpr double kWindow = 0.01;
  /// Preemptions per CPU second from which the cores are shared, and up to which they are ours.
  static constexpr double kShared = 300;
  static constexpr double kCalm = 150;
  /// Calm windows before threads spin again; doubles, up to the most, when that was soon regretted.
  static constexpr int kFewestCalm = 8;
  static constexpr int kMostCalm = 128;

  /// `total` since the process began. Returns whether threads may spin from now on.
  bool update(const CoreUse& total);
  bool may_spin() const { return may_spin_; }

 private:
  CoreUse seen_;
  bool may_spin_ = true;
  int calm_ = 0;              // windows in a row, while threads park
  int wanted_ = kFewestCalm;  // of them
  int spinning_ = 0;          // windows since threads spin again
};

/// This process's use so far. Cost: one system call.
CoreUse core_use();

/// Tells the OpenMP runtime how the calling thread's regions wait, as the process's advisor says.
/// Does nothing where the runtime cannot be told, or where the user has said how it is to wait
/// (KMP_BLOCKTIME, OMP_WAIT_POLICY). Cost: a look at the clock; every 5 ms a system call.
void update_waiting();

/// False where update_waiting() has last told the calling thread's regions to park.
bool threads_spin();

}  // namespace cohort::internal::runtime
