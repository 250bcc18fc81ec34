// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/gradient_lease.h"

#include <algorithm>

#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal {

GradientLease::~GradientLease() {
  for (auto& [arena, buffer] : buffers_) {
    buffer->leases.fetch_sub(1, std::memory_order_release);
  }
}

GradientBuffer& GradientLease::buffer(const std::shared_ptr<Arena>& arena) {
  if (GradientBuffer* taken = find(arena.get())) return *taken;
  const ReplicaGroup* group = current_replica_group();
  const int replica = std::max(0, current_replica());
  // Outside a run: a buffer that no update has shown to other replicas.
  const uint64_t epoch = group != nullptr ? group->epoch(replica) : 1;
  GradientBuffer& buffer = arena->acquire_buffer(replica < arena->replicas() ? replica : 0, epoch);
  buffers_.emplace_back(arena, &buffer);
  return buffer;
}

GradientBuffer* GradientLease::find(const Arena* arena) const {
  for (const auto& [owner, buffer] : buffers_) {
    if (owner.get() == arena) return buffer;
  }
  return nullptr;
}

const Tensor& GradientLease::view(VariableImpl& variable) {
  return variable.local_component().gradient_view(variable.range(), buffer(variable.arena()));
}

}  // namespace cohort::internal
