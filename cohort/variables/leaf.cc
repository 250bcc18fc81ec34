// SPDX-License-Identifier: Apache-2.0
//
// Tensors of others as components, and what passes tell of leaves. A unit of its own because it
// needs LibTorch's autograd headers.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "cohort/base/check.h"
#include "cohort/runtime/libtorch.h"
#include "cohort/variables/component.h"
#include "cohort/variables/final_gradients.h"

namespace cohort::internal::variables {
namespace {

using torch::autograd::variable_list;

thread_local PassListener* t_listener = nullptr;

// If the slot has all of it, where optimizers look for it.
void tell(Component& component) {
  FinalGradients* const to = PassListener::current();
  const GradientSlot& slot = component.slot;
  if (to == nullptr || !slot.written || !slot.rows.empty()) return;
  if (component.range == nullptr || component.buffer_of(slot.view) == nullptr) return;
  to->on_final(component, slot.view);
}

/// Puts what a pass brings to a leaf into the open slot while it is hot in the cache and its memory
/// can serve the rest of the pass. All uses are summed by then: the engine calls it once, after
/// every node that writes into the slot by itself.
struct SlotHook final : torch::autograd::FunctionPreHook {
  explicit SlotHook(std::shared_ptr<Component*> of) : component(std::move(of)) {}

  variable_list operator()(const variable_list& gradients) override {
    const Tensor& gradient = gradients[0];
    if (*component == nullptr || !(*component)->has_open_slot()) return gradients;
    if (gradient.defined() && gradient.is_sparse()) return gradients;
    const bool from_engine = gradient.defined();
    if (from_engine) put(gradient);
    tell(**component);
    return from_engine ? variable_list{(*component)->slot.view} : gradients;
  }

  void put(const Tensor& gradient) const {
    GradientSlot& slot = (*component)->slot;
    const at::NoGradGuard no_grad;
    if (std::exchange(slot.written, true)) {
      slot.view.add_(gradient);
    } else {
      slot.view.copy_(gradient);
    }
    slot.summed = true;
  }

  const std::shared_ptr<Component*> component;  // null when the variable is gone
};

/// Keeps the leaf's node for the variable, and the hook from a variable that is gone.
struct AdoptedLeaf {
  AdoptedLeaf(Component* component, runtime::GraphNodePtr<torch::autograd::Node> of)
      : back(std::make_shared<Component*>(component)), node(std::move(of)) {}
  ~AdoptedLeaf() { *back = nullptr; }
  AdoptedLeaf(const AdoptedLeaf&) = delete;
  AdoptedLeaf& operator=(const AdoptedLeaf&) = delete;
  const std::shared_ptr<Component*> back;
  const runtime::GraphNodePtr<torch::autograd::Node> node;
};

// The component's tensor is a leaf that requires gradients.
void add_slot_hook(Component& component) {
  auto adopted = std::make_shared<AdoptedLeaf>(
      &component, torch::autograd::impl::grad_accumulator(component.tensor));
  torch::autograd::impl::add_hook(component.tensor, std::make_unique<SlotHook>(adopted->back));
  component.accumulator = std::move(adopted);
}

}  // namespace

PassListener::PassListener(FinalGradients* to, const Tensor& target) : to_(to), outer_(t_listener) {
  t_listener = to != nullptr ? this : nullptr;
  // The target is where the pass begins, ahead of all that it calls.
  if (to == nullptr || !target.defined() || target.grad_fn() == nullptr) return;
  target.register_hook([](const Tensor&) {
    const bool begins = t_listener != nullptr && t_listener->pass_ < 0;
    if (begins) t_listener->pass_ = torch::autograd::get_current_graph_task_id();
  });
}
PassListener::~PassListener() { t_listener = outer_; }

FinalGradients* PassListener::current() {
  const bool is_told = t_listener != nullptr && t_listener->pass_ >= 0 &&
                       t_listener->pass_ == torch::autograd::get_current_graph_task_id();
  return is_told ? t_listener->to_ : nullptr;
}

void tell_when_final(Component& component) {
  // Beside hooks of the program there is none of ours: one it registers later takes ours away.
  const bool is_free = torch::autograd::impl::hooks(component.tensor).empty();
  if (component.tensor.requires_grad() && is_free) add_slot_hook(component);
}

void renew_accumulator(Component& component) {
  const Tensor& leaf = component.tensor;
  if (!leaf.requires_grad() || !torch::autograd::impl::hooks(leaf).empty()) return;
  component.accumulator.reset();
  component.accumulator = std::make_shared<runtime::GraphNodePtr<torch::autograd::Node>>(
      torch::autograd::impl::grad_accumulator(leaf));
}

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
  add_slot_hook(*this);
}

}  // namespace cohort::internal::variables
