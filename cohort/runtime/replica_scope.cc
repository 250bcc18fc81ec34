// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal::runtime {

ThreadContext merged_context() {
  ThreadContext context = current_context();
  context.kind = ContextKind::kCrossReplica;
  context.replica = -1;
  return context;
}

namespace {

ThreadContext replica_context(ReplicaGroup* group, int replica, int count) {
  ThreadContext context = merged_context();
  if (replica >= 0) context.kind = ContextKind::kReplica;
  context.replica = replica;
  context.group = group;
  context.layout = ReplicaLayout::one_worker(count);
  return context;
}

}  // namespace

ReplicaScope::ReplicaScope(ReplicaGroup* group, int replica, int count)
    : frame_(replica_context(group, replica, count)) {}

}  // namespace cohort::internal::runtime
