// SPDX-License-Identifier: Apache-2.0
//
// Tensors of others as components. A unit of its own because it needs LibTorch's autograd headers.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "cohort/base/check.h"
#include "cohort/runtime/libtorch.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal {
namespace {

using torch::autograd::variable_list;

/// Puts what a pass brings to a leaf into the open slot while it is hot in the cache and its memory
/// can serve the rest of the pass. All uses are summed by then: the engine calls it once, after
/// every node that writes into the slot by itself.
struct SlotHook final : torch::autograd::FunctionPreHook {
  explicit SlotHook(std::shared_ptr<Component*> of) : component(std::move(of)) {}

  variable_list operator()(const variable_list& gradients) override {
    const Tensor& gradient = gradients[0];
    if (*component == nullptr || !gradient.defined() || gradient.is_sparse()) return gradients;
    if (!(*component)->has_open_slot()) return gradients;
    GradientSlot& slot = (*component)->slot;
    const at::NoGradGuard no_grad;
    if (std::exchange(slot.written, true)) {
      slot.view.add_(gradient);
    } else {
      slot.view.copy_(gradient);
    }
    slot.summed = true;
    return {slot.view};
  }

  const std::shared_ptr<Component*> component;  // null when the variable is gone
};

/// Keeps the leaf's node for the variable, and the hook from a variable that is gone.
struct AdoptedLeaf {
  AdoptedLeaf(Component* component, GraphNodePtr<torch::autograd::Node> of)
      : back(std::make_shared<Component*>(component)), node(std::move(of)) {}
  ~AdoptedLeaf() { *back = nullptr; }
  AdoptedLeaf(const AdoptedLeaf&) = delete;
  AdoptedLeaf& operator=(const AdoptedLeaf&) = delete;
  const std::shared_ptr<Component*> back;
  const GraphNodePtr<torch::autograd::Node> node;
};

}  // namespace

void Component::adopt(const Tensor& leaf) {
  COHORT_CHECK_ARG(leaf.is_leaf() && leaf.sizes() == tensor.sizes() &&
                       leaf.scalar_type() == tensor.scalar_type(),
                   "[variable] expected a leaf ", dtype_name(tensor.scalar_type()),
                   bracketed(tensor.sizes()), ", got ", leaf.is_leaf() ? "" : "a computed ",
                   dtype_name(leaf.scalar_type()), bracketed(leaf.sizes()));
  const bool trains = tensor.requires_grad();
  {
    const at::NoGradGuard no_grad;
    leaf.set_data(tensor.detach());
    leaf.set_requires_grad(trains);
  }
  tensor = leaf;
  accumulator.reset();
  if (!trains) return;
  auto adopted =
      std::make_shared<AdoptedLeaf>(this, torch::autograd::impl::grad_accumulator(tensor));
  torch::autograd::impl::add_hook(tensor, std::make_unique<SlotHook>(adopted->back));
  accumulator = std::move(adopted);
}

}  // namespace cohort::internal
