// SPDX-License-Identifier: Apache-2.0
//
// The local kind of variables: one component for each replica of this process, in its memory, and
// in an arena where it is trained.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "cohort/variables/arena.h"
#include "cohort/variables/leaf.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::variables {

/// One replica's copy of a variable, or its leaf over the copy that all share. Threads: as Leaf.
struct Component : Leaf {
  std::shared_ptr<ArenaRange> range;  ///< Where it lies; null where it owns its memory.
  std::vector<std::pair<GradientBuffer*, Tensor>> gradient_views;

  /// Where that is; null where it owns its memory.
  const std::shared_ptr<Arena>& arena() const;
  /// This variable's view of `buffer`, made once per buffer; undefined while anybody still holds
  /// what was handed out before. Of a component in an arena.
  Tensor free_gradient_view(GradientBuffer& buffer);
  /// The buffer that `gradient` is such a view of; null for any other tensor.
  GradientBuffer* buffer_of(const Tensor& gradient) const;
  /// Makes `leaf` the component's tensor: it takes over the memory and keeps its identity, so that
  /// whoever holds it (a torch::nn::Module) computes with the component. What it held is lost; a
  /// hook puts its gradients into the slot. Replicas must be at rest.
  /// Errors: InvalidArgument unless it is a leaf of the same shape and type.
  void adopt(const Tensor& leaf);
};

/// A variable whose leaves are components.
class LocalImpl : public VariableImpl {
 public:
  using VariableImpl::VariableImpl;

  Component& leaf() override = 0;
  Component& leaf_of(int replica) override = 0;
  LocalImpl* local() final { return this; }
};

/// The variable as the local kind that it is.
LocalImpl& local_impl(VariableImpl& variable);
/// Makes the node anew by which LibTorch's engine brings gradients to the component's leaf: the
/// node belongs to the stream of its device that is current now, and a pass ends with both streams
/// waiting for each other, which a pass that is captured must not. Does nothing where a graph or a
/// hook has the node. Replicas at rest but the calling one.
void renew_accumulator(Component& component);
/// True if `gradient` is what the calling replica's component handed out of an arena, where updates
/// read it fastest. False for every variable of another kind.
bool is_in_arena(VariableImpl& variable, const Tensor& gradient);

}  // namespace cohort::internal::variables
