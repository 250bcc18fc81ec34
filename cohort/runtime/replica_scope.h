// SPDX-License-Identifier: Apache-2.0
//
// "Which replica am I" is an integer of the thread, not a strategy pointer.
#pragma once

namespace cohort {

namespace internal {
class ReplicaGroup;
}

/// The local replica that this thread runs, or -1 in cross-replica and in default context.
int current_replica();
/// Number of local replicas of the run this thread is in; 1 outside.
int current_replica_count();

namespace internal {

/// Gradient tapes that are open around what this thread does: its own, and in a replica those of
/// the caller of run.
int open_tapes();
void set_open_tapes(int count);

/// The component that a function given to StrategyExtended::update writes now, or -1.
int current_update_replica();

/// The group that this thread runs a replica of; nullptr in cross-replica and default context.
ReplicaGroup* current_replica_group();
/// The same, and inside a merge function the group that waits for it.
ReplicaGroup* enclosing_replica_group();

/// Makes the calling thread replica `replica` of `group` for its lifetime; with replica -1 the
/// thread is in cross-replica context, as a merge function is.
class [[nodiscard]] ReplicaScope {
 public:
  ReplicaScope(ReplicaGroup* group, int replica, int count);
  ~ReplicaScope();
  ReplicaScope(const ReplicaScope&) = delete;
  ReplicaScope& operator=(const ReplicaScope&) = delete;

 private:
  ReplicaGroup* const group_before_;
  const int replica_before_;
  const int count_before_;
};

/// Says for its lifetime which component is being updated, cross-replica.
class [[nodiscard]] UpdateScope {
 public:
  explicit UpdateScope(int component);
  ~UpdateScope();
  UpdateScope(const UpdateScope&) = delete;
  UpdateScope& operator=(const UpdateScope&) = delete;

 private:
  const int before_;
};

}  // namespace internal
}  // namespace cohort
