// SPDX-License-Identifier: Apache-2.0
//
// "Which replica am I" is an integer of the thread, not a strategy pointer.
#pragma once

#include "cohort/runtime/thread_context.h"

namespace cohort {

/// The local replica that this thread runs, or -1 in cross-replica and in default context.
inline int current_replica() { return internal::runtime::t_slots.top->context.replica; }
/// Number of local replicas of the run this thread is in; 1 outside.
inline int current_replica_count() {
  return internal::runtime::t_slots.top->context.layout.local();
}

namespace internal::runtime {

/// Which replicas of the job the run that this thread is in has; outside one replica of one.
inline const ReplicaLayout& current_layout() { return t_slots.top->context.layout; }
/// This thread's replica among those of all workers, or -1 as current_replica().
inline int current_global_replica() { return current_layout().global_id(current_replica()); }

/// Gradient tapes that are open around what this thread does: its own, and in a replica those of
/// the caller of run.
inline int open_tapes() { return t_slots.open_tapes; }
inline void set_open_tapes(int count) { t_slots.open_tapes = count; }

/// The component that a function given to StrategyExtended::update writes now, or -1.
inline int current_update_replica() { return t_slots.top->context.update; }

/// The group that this thread runs a replica of; nullptr in cross-replica and default context.
inline ReplicaGroup* current_replica_group() {
  const ThreadContext& here = t_slots.top->context;
  return here.replica >= 0 ? here.group : nullptr;
}
/// The same, and inside a merge function the group that waits for it.
inline ReplicaGroup* enclosing_replica_group() { return t_slots.top->context.group; }

/// Reaches the other workers of the run that this thread is in; null where there is one worker.
/// Errors: Unimplemented with several that nothing reaches.
inline collectives::Communicator* other_workers(const char* operation) {
  const ThreadContext& here = t_slots.top->context;
  if (here.layout.workers() == 1) return nullptr;
  if (here.workers == nullptr) check_one_worker(operation, here.layout);
  return here.workers;
}

/// What the calling thread's context is in a merge: that of all its replicas.
ThreadContext merged_context();

/// Makes the calling thread replica `replica` of `group` for its lifetime; with replica -1 the
/// thread is in cross-replica context, as a merge function is.
class [[nodiscard]] ReplicaScope {
 public:
  ReplicaScope(ReplicaGroup* group, int replica, int count);

 private:
  ContextFrame frame_;
};

}  // namespace internal::runtime
}  // namespace cohort
