// SPDX-License-Identifier: Apache-2.0
//
// Collectives of replica contexts, as autograd nodes: their backward passes are collectives too,
// so every replica runs them in the same order.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "cohort/collectives/local_reduce.h"
#include "cohort/runtime/libtorch.h"
#include "cohort/strategy/replica_context.h"

namespace cohort::internal {
namespace {

using torch::autograd::variable_list;

std::vector<Tensor> detached(std::span<const void* const> arguments) {
  std::vector<Tensor> values;
  for (const void* argument : arguments) {
    values.push_back(static_cast<const Tensor*>(argument)->detach());
  }
  return values;
}

Tensor merged_copy(const std::shared_ptr<void>& result) {
  // Each replica owns what it gets: one may write into it.
  return static_cast<const Tensor*>(result.get())->clone();
}

Tensor reduce_now(StrategyExtended& strategy, ReduceOp op, const Tensor& value) {
  static const char tag = 0;
  const at::NoGradGuard no_grad;
  return merged_copy(strategy.merge(&tag, &value, [&](std::span<const void* const> all) {
    return std::static_pointer_cast<void>(
        std::make_shared<Tensor>(reduce_in_order(op, detached(all))));
  }));
}

struct Gathered {
  Tensor joined;
  std::vector<int64_t> sizes;  // along the axis, per replica
};

struct AllReduceNode : torch::autograd::Node {
  AllReduceNode(std::shared_ptr<StrategyExtended> of, ReduceOp reduce)
      : strategy(std::move(of)), op(reduce) {}
  variable_list apply(variable_list&& gradients) override {
    return {all_reduce_tensor(*strategy, op, gradients[0])};
  }
  const std::shared_ptr<StrategyExtended> strategy;
  const ReduceOp op;
};

struct AllGatherNode : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    const Tensor sum = all_reduce_tensor(*strategy, ReduceOp::kSum, gradients[0]);
    return {sum.narrow(axis, begin, size)};
  }
  std::shared_ptr<StrategyExtended> strategy;
  int64_t axis = 0;
  int64_t begin = 0;
  int64_t size = 0;
};

bool records(const Tensor& value) { return at::GradMode::is_enabled() && value.requires_grad(); }

void attach_node(Tensor& out, const Tensor& value, NodePtr<torch::autograd::Node> node) {
  node->set_next_edges(torch::autograd::collect_next_edges(value));
  torch::autograd::set_history(out, node);
}

}  // namespace

Tensor all_reduce_tensor(StrategyExtended& strategy, ReduceOp op, const Tensor& value) {
  COHORT_CHECK_ARG(!records(value) || op == ReduceOp::kSum || op == ReduceOp::kMean,
                   "[replica_context.all_reduce] expected sum or mean of a tensor that requires "
                   "gradients, got ",
                   reduce_op_name(op));
  Tensor out = reduce_now(strategy, op, value);
  if (records(value)) {
    attach_node(out, value, make_node<AllReduceNode>(strategy.shared_from_this(), op));
  }
  return out;
}

Tensor all_gather_tensor(StrategyExtended& strategy, const Tensor& value, int64_t axis) {
  static const char tag = 0;
  COHORT_CHECK_ARG(value.dim() > 0,
                   "[replica_context.all_gather] expected a tensor with an axis to "
                   "join, got a scalar");
  const int64_t along = axis < 0 ? axis + value.dim() : axis;
  const auto result = strategy.merge(&tag, &value, [&](std::span<const void* const> all) {
    const at::NoGradGuard no_grad;
    auto gathered = std::make_shared<Gathered>();
    const std::vector<Tensor> values = detached(all);
    gathered->joined = gather_tensors(values, axis);
    for (const Tensor& one : values) gathered->sizes.push_back(one.size(along));
    return std::static_pointer_cast<void>(gathered);
  });
  const auto& gathered = *static_cast<const Gathered*>(result.get());
  Tensor out = gathered.joined.clone();
  if (!records(value)) return out;
  auto node = make_node<AllGatherNode>();
  const auto replica = static_cast<std::size_t>(std::max(0, current_replica()));
  node->strategy = strategy.shared_from_this();
  node->axis = along;
  for (std::size_t r = 0; r < replica; ++r) node->begin += gathered.sizes[r];
  node->size = gathered.sizes[replica];
  attach_node(out, value, node);
  return out;
}

}  // namespace cohort::internal
