// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_scope.h"

namespace cohort {
namespace {

struct State {
  internal::ReplicaGroup* group = nullptr;
  int replica = -1;
  int count = 1;
};
thread_local State t_state;
thread_local int t_update = -1;
thread_local int t_open_tapes = 0;

}  // namespace

int current_replica() { return t_state.replica; }
int current_replica_count() { return t_state.count; }

namespace internal {

int open_tapes() { return t_open_tapes; }
void set_open_tapes(int count) { t_open_tapes = count; }

int current_update_replica() { return t_update; }

ReplicaGroup* current_replica_group() { return t_state.replica >= 0 ? t_state.group : nullptr; }
ReplicaGroup* enclosing_replica_group() { return t_state.group; }

ReplicaScope::ReplicaScope(ReplicaGroup* group, int replica, int count)
    : group_before_(t_state.group), replica_before_(t_state.replica), count_before_(t_state.count) {
  t_state = {group, replica, count};
}

ReplicaScope::~ReplicaScope() { t_state = {group_before_, replica_before_, count_before_}; }

UpdateScope::UpdateScope(int component) : before_(t_update) { t_update = component; }
UpdateScope::~UpdateScope() { t_update = before_; }

}  // namespace internal
}  // namespace cohort
