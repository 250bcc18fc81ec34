// SPDX-License-Identifier: Apache-2.0
//
// "Which replica am I" is an integer of the thread, not a strategy pointer.
#pragma once

namespace cohort {

/// The local replica that this thread runs, or -1 outside of Strategy::run.
int current_replica();
/// Number of local replicas of the current run; 1 outside.
int current_replica_count();

/// Sets the calling thread's replica for its lifetime.
class [[nodiscard]] ReplicaScope {
 public:
  ReplicaScope(int replica, int count);
  ~ReplicaScope();
  ReplicaScope(const ReplicaScope&) = delete;
  ReplicaScope& operator=(const ReplicaScope&) = delete;

 private:
  int replica_before_;
  int count_before_;
};

}  // namespace cohort
