// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/layer_node.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

namespace cohort::internal::autograd {

variable_list LayerNode::apply(variable_list&& gradients) {
  if (at::GradMode::is_enabled()) return differentiable_backward(std::move(gradients));
  const BelowAutograd below;
  return backward(std::move(gradients));
}

void LayerNode::add_input(const Tensor& x) {
  ++inputs_;
  if (x.defined() && x.requires_grad()) {
    add_next_edge(torch::autograd::impl::gradient_edge(x));
  } else {
    add_next_edge({});
  }
}

void LayerNode::add_weight(const Variable& weight) {
  if (!weight) {
    weights_.push_back(nullptr);
    add_next_edge({});
    return;
  }
  variables::Leaf& leaf = weight.impl().leaf();
  weights_.push_back(&leaf);
  keep_alive_.push_back(weight);
  add_input_edge_of_weight(leaf.tensor);
}

void LayerNode::add_input_edge_of_weight(const Tensor& leaf) {
  if (leaf.requires_grad()) {
    add_next_edge(torch::autograd::impl::gradient_edge(leaf));
  } else {
    add_next_edge({});
  }
}

Tensor LayerNode::empty_gradient(const Tensor& weight) {
  return at::empty(weight.sizes(), weight.options());
}

bool needs_node(std::initializer_list<const Tensor*> inputs,
                std::initializer_list<const Variable*> weights) {
  if (!at::GradMode::is_enabled()) return false;
  for (const Tensor* x : inputs) {
    if (x->defined() && x->requires_grad()) return true;
  }
  for (const Variable* v : weights) {
    if (*v && v->impl().leaf().tensor.requires_grad()) return true;
  }
  return false;
}

void attach(Tensor& output, runtime::GraphNodePtr<LayerNode> node) {
  torch::autograd::set_history(output, std::move(node));
}

bool owns(const Tensor& gradient) {
  return gradient.use_count() == 1 && gradient.storage().use_count() == 1 &&
         gradient.is_contiguous();
}

BelowAutograd::BelowAutograd() : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}
BelowAutograd::~BelowAutograd() = default;

}  // namespace cohort::internal::autograd
