// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/gradient_lease.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/runtime/step_recording.h"
#include "cohort/variables/component.h"

namespace cohort::internal::variables {
namespace {

// Outside a run: above what any update has shown to other replicas.
uint64_t current_epoch() {
  const runtime::ReplicaGroup* group = runtime::current_replica_group();
  return group != nullptr ? group->epoch(std::max(0, current_replica())) : 1;
}

// What is recorded writes into a buffer whenever it is started: nobody else is to be given it, and
// what is kept of gradients is elsewhere.
struct ReservedBuffer {
  ReservedBuffer(std::shared_ptr<Arena> of, GradientBuffer& reserved)
      : arena(std::move(of)), buffer(reserved) {
    buffer.leases.fetch_add(1, std::memory_order_relaxed);
  }
  ~ReservedBuffer() { buffer.leases.fetch_sub(1, std::memory_order_release); }
  ReservedBuffer(const ReservedBuffer&) = delete;
  ReservedBuffer& operator=(const ReservedBuffer&) = delete;
  const std::shared_ptr<Arena> arena;
  GradientBuffer& buffer;
};

// One that an earlier recording has reserved, and that no lease has now; leased once more.
GradientBuffer* reserved_buffer(runtime::RecordingStore& store,
                                const std::shared_ptr<Arena>& arena) {
  for (const std::shared_ptr<ReservedBuffer>& reserved : store.kept<ReservedBuffer>()) {
    int only_reserved = 1;
    const bool is_free =
        reserved->arena == arena && reserved->buffer.leases.compare_exchange_strong(
                                        only_reserved, 2, std::memory_order_acquire);
    if (is_free) return &reserved->buffer;
  }
  return nullptr;
}

}  // namespace

GradientLease::GradientLease() : replica_(current_replica()) {}

bool GradientLease::is_here() const { return replica_ == current_replica(); }

GradientLease::~GradientLease() {
  for (auto& [arena, buffer] : buffers_) {
    if (buffer != nullptr) buffer->leases.fetch_sub(1, std::memory_order_release);
  }
}

GradientBuffer* GradientLease::buffer(const std::shared_ptr<Arena>& arena, uint64_t epoch) {
  for (const auto& [owner, buffer] : buffers_) {
    if (owner == arena) return buffer;
  }
  const int replica = std::max(0, current_replica());
  buffers_.emplace_back(arena, nullptr);
  GradientBuffer*& found = buffers_.back().second;
  runtime::StepRecording* const recording = runtime::StepRecording::current();
  if (recording != nullptr) found = reserved_buffer(recording->store(), arena);
  if (found != nullptr) return found;
  found = arena->acquire_buffer(replica < arena->replicas() ? replica : 0, epoch);
  if (recording != nullptr && found != nullptr) {
    recording->store().keep(std::make_shared<ReservedBuffer>(arena, *found));
  }
  return found;
}

Tensor GradientLease::free_place(VariableImpl& variable) {
  LocalImpl* const local = variable.local();
  if (local == nullptr) return {};
  Component& component = local->leaf();
  const std::shared_ptr<Arena>& arena = component.arena();
  if (arena == nullptr) return {};
  // One component of several, outside of a run: all of them would share the first one's place.
  if (variable.leaf_count() != arena->replicas()) return {};
  const uint64_t epoch = current_epoch();
  GradientBuffer* const from = buffer(arena, epoch);
  // Other replicas may still read what this lease has brought to an update.
  if (from == nullptr || from->readable_until >= epoch) return {};
  return component.free_gradient_view(*from);
}

Tensor GradientLease::place(VariableImpl& variable) {
  Tensor found = free_place(variable);
  if (found.defined()) return found;
  const Tensor& like = variable.leaf().tensor;
  return at::empty(like.sizes(), like.options().requires_grad(false));
}

}  // namespace cohort::internal::variables
