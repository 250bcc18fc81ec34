// SPDX-License-Identifier: Apache-2.0
//
// Collectives of replica contexts, as autograd nodes: their backward passes are collectives too,
// so every replica runs them in the same order.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

#include "cohort/collectives/global_collectives.h"
#include "cohort/runtime/libtorch.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/internal/collective.h"
#include "cohort/strategy/internal/local_strategy.h"
#include "cohort/strategy/internal/own_ops.h"
#include "cohort/strategy/replica_context.h"

namespace cohort::internal::strategy {
namespace {

using torch::autograd::variable_list;
using Kind = collectives::CollectiveLeaf::Kind;
using Leaves = std::span<const collectives::CollectiveLeaf>;

const Tensor& input_of(const collectives::CollectiveLeaf& leaf) {
  return *static_cast<const Tensor*>(leaf.in);
}
Tensor& output_of(const collectives::CollectiveLeaf& leaf) {
  return *static_cast<Tensor*>(leaf.out);
}
collectives::CollectiveLeaf leaf_of(const Tensor& in, Tensor& out) {
  return {.kind = Kind::kTensor, .in = &in, .out = &out};
}

bool has_gradient(const collectives::CollectiveLeaf& leaf) {
  return leaf.kind == Kind::kTensor &&
         (input_of(leaf).is_floating_point() || input_of(leaf).is_complex());
}

bool records(Leaves leaves) {
  return at::GradMode::is_enabled() &&
         std::any_of(leaves.begin(), leaves.end(), [](const collectives::CollectiveLeaf& leaf) {
           return leaf.kind == Kind::kTensor && input_of(leaf).requires_grad();
         });
}

// Where this replica meets the others; null in default context, where there are none.
runtime::ReplicaGroup* meeting_place(StrategyExtended& strategy) {
  runtime::ReplicaGroup* group = runtime::current_replica_group();
  const bool is_default = &strategy == LocalStrategy::default_instance().get();
  COHORT_CHECK_STATE(
      group == nullptr || runtime::current_context().strategy == (is_default ? nullptr : &strategy),
      "[replica_context] expected the replica context of the strategy that runs here",
      runtime::current_context().strategy == nullptr
          ? ""
          : str_cat(", ", runtime::current_context().strategy->description()),
      ", got one of ", strategy.description(),
      ": call get_replica_context() inside of strategy.run");
  COHORT_CHECK_STATE(group != nullptr || is_default,
                     "[replica_context] expected to be inside strategy.run, got cross-replica "
                     "context: use the strategy's reduce or gather; the gradient of a collective "
                     "is a collective, too, so take it inside run");
  return group;
}

std::size_t this_replica() { return static_cast<std::size_t>(std::max(0, current_replica())); }
std::size_t this_global_replica() {
  return static_cast<std::size_t>(std::max(0, runtime::current_global_replica()));
}

using Calls = runtime::Brought<collectives::CollectiveCall>;

void check_calls(Calls all) {
  for (std::size_t r = 1; r < all.size(); ++r) collectives::check_same_call(all[0], all[r], r);
}

Gradient gradient_of(const collectives::CollectiveLeaf& leaf) {
  switch (leaf.kind) {
    case Kind::kTensor:
      return input_of(leaf).detach();
    case Kind::kSlices:
      return *static_cast<const IndexedSlices*>(leaf.in);
    case Kind::kNumber:
    case Kind::kNone:
      break;
  }
  return {};
}

using Sizes = std::vector<std::vector<int64_t>>;

constexpr const char* kAllReduce = "[replica_context.all_reduce] ";

// Of all collectives through a user's ops: which of them it is, is for check_calls.
constexpr const char* kByOps = "a collective";
struct Merged {
  std::vector<Mirrored<Gradient>> reduced = {};
  std::vector<Mirrored<Tensor>> joined = {};
  Sizes sizes = {};
};

// Through the user's own cross-device ops: replica 0 calls them for all, and then the other
// workers.
void reduce_by_ops(StrategyExtended& strategy, CrossDeviceOps& ops,
                   collectives::Communicator* workers, const collectives::CollectiveCall& call,
                   const CommunicationOptions& options) {
  const at::NoGradGuard no_grad;
  const Leaves leaves = call.leaves;
  const auto merged = strategy.merge(kByOps, call, [&](Calls all) {
    check_calls(all);
    std::vector<ReduceItem> items;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      std::vector<Gradient> parts;
      for (const collectives::CollectiveCall& one : all)
        parts.push_back(gradient_of(one.leaves[i]));
      items.push_back({PerReplica<Gradient>(std::move(parts)), strategy.worker_devices()});
    }
    return Merged{.reduced = workers != nullptr ? reduce_through(kAllReduce, ops, *workers, call.op,
                                                                 items, options)
                                                : ops.batch_reduce(call.op, items, options)};
  });
  const std::vector<Mirrored<Gradient>>& results = merged->reduced;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Gradient& mine = results[i][results[i].size() > 1 ? this_replica() : 0];
    // Each replica owns what it gets, whatever the ops share.
    if (leaves[i].kind == Kind::kTensor) {
      output_of(leaves[i]) = mine.dense().clone();
    } else {
      *static_cast<IndexedSlices*>(leaves[i].out) = copy_of_slices(mine.slices());
    }
  }
}

void reduce_now(StrategyExtended& strategy, ReduceOp op, Leaves leaves,
                const CommunicationOptions& options, const collectives::CollectiveOrigin& origin) {
  runtime::ReplicaGroup* const group = meeting_place(strategy);
  collectives::Communicator* const workers = runtime::other_workers(kAllReduce);
  const auto in_place = [&](Leaves some) {
    workers != nullptr ? collectives::global_all_reduce(*group, *workers, op, some, origin)
                       : collectives::all_reduce_leaves(group, op, some, origin);
  };
  CrossDeviceOps* const ops = strategy.custom_cross_device_ops();
  if (ops == nullptr) return in_place(leaves);
  std::vector<collectives::CollectiveLeaf> theirs, numbers;
  for (const collectives::CollectiveLeaf& leaf : leaves) {
    if (leaf.kind == Kind::kNumber) numbers.push_back(leaf);
    if (leaf.kind == Kind::kTensor || leaf.kind == Kind::kSlices) theirs.push_back(leaf);
  }
  if (!theirs.empty()) {
    reduce_by_ops(strategy, *ops, workers, {.op = op, .leaves = theirs, .origin = origin}, options);
  }
  if (!numbers.empty()) in_place(numbers);
}

void gather_by_ops(StrategyExtended& strategy, CrossDeviceOps& ops,
                   const collectives::CollectiveCall& call, Sizes& sizes) {
  const Leaves leaves = call.leaves;
  const int64_t axis = call.axis;
  collectives::check_gatherable(leaves);
  const at::NoGradGuard no_grad;
  const auto merged = strategy.merge(kByOps, call, [&](Calls all) {
    check_calls(all);
    Merged gathered;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      std::vector<Tensor> parts;
      for (const collectives::CollectiveCall& one : all)
        parts.push_back(input_of(one.leaves[i]).detach());
      gathered.joined.push_back(
          ops.gather(PerReplica<Tensor>(parts), strategy.worker_devices(), axis));
      std::vector<int64_t>& along = gathered.sizes.emplace_back();
      for (const Tensor& part : parts) along.push_back(part.size(axis));
    }
    return gathered;
  });
  sizes = merged->sizes;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Mirrored<Tensor>& joined = merged->joined[i];
    output_of(leaves[i]) = joined[joined.size() > 1 ? this_replica() : 0].clone();
  }
}

// The epoch behind a meeting tells it apart from all others of the strategy: every replica that was
// there has the same.
uint64_t epoch_here() {
  const runtime::ReplicaGroup* group = runtime::current_replica_group();
  return group != nullptr ? group->epoch(current_replica()) : 1;
}

// Of all tensors of one all-reduce, so that their gradients meet once, too.
struct AllReduceNode : torch::autograd::Node {
  AllReduceNode(std::shared_ptr<StrategyExtended> of, ReduceOp reduce,
                const CommunicationOptions& how)
      : strategy(std::move(of)), op(reduce), options(how), epoch(epoch_here()) {}

  variable_list apply(variable_list&& gradients) override {
    variable_list sums(gradients.size());
    std::vector<collectives::CollectiveLeaf> leaves;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      // Another replica may have used this result.
      if (!gradients[i].defined()) gradients[i] = input_metadata(i).zeros_like();
      leaves.push_back(leaf_of(gradients[i], sums[i]));
    }
    all_reduce_together(*strategy, op, leaves, options, {.forward = epoch});
    return sums;
  }

  const std::shared_ptr<StrategyExtended> strategy;
  const ReduceOp op;
  const CommunicationOptions options;
  const uint64_t epoch;
};

struct AllGatherNode : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    Tensor sum;
    const collectives::CollectiveLeaf leaf = leaf_of(gradients[0], sum);
    all_reduce_together(*strategy, ReduceOp::kSum, std::span(&leaf, 1), {}, origin);
    return {sum.narrow(axis, begin, size)};
  }
  std::shared_ptr<StrategyExtended> strategy;
  int64_t axis = 0;
  int64_t begin = 0;
  int64_t size = 0;
  collectives::CollectiveOrigin origin;
};

}  // namespace

void all_reduce_together(StrategyExtended& strategy, ReduceOp op, Leaves leaves,
                         const CommunicationOptions& options,
                         const collectives::CollectiveOrigin& origin) {
  collectives::check_call_options("[replica_context.all_reduce] ", options);
  const bool recorded = records(leaves);
  COHORT_CHECK_ARG(!recorded || op == ReduceOp::kSum || op == ReduceOp::kMean,
                   "[replica_context.all_reduce] expected sum or mean of a tensor that requires "
                   "gradients, got ",
                   reduce_op_name(op), "; detach() it first");
  reduce_now(strategy, op, leaves, options, origin);
  if (!recorded) return;
  variable_list inputs;
  auto node = runtime::make_node<AllReduceNode>(strategy.shared_from_this(), op, options);
  for (const collectives::CollectiveLeaf& leaf : leaves) {
    if (has_gradient(leaf)) inputs.push_back(input_of(leaf));
  }
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (const collectives::CollectiveLeaf& leaf : leaves) {
    if (has_gradient(leaf)) torch::autograd::set_history(output_of(leaf), node);
  }
}

void all_gather_together(StrategyExtended& strategy, int64_t axis, Leaves leaves,
                         const collectives::CollectiveOrigin& origin) {
  runtime::ReplicaGroup* const group = meeting_place(strategy);
  Sizes sizes(leaves.size());
  const std::span<Sizes::value_type> recorded =
      records(leaves) ? std::span(sizes) : std::span<Sizes::value_type>();
  if (collectives::Communicator* const workers =
          runtime::other_workers("[replica_context.all_gather] ")) {
    collectives::global_all_gather(*group, *workers, axis, leaves, recorded, origin);
  } else if (CrossDeviceOps* const ops = strategy.custom_cross_device_ops()) {
    gather_by_ops(strategy, *ops,
                  {.kind = collectives::CollectiveCall::Kind::kGather,
                   .axis = axis,
                   .leaves = leaves,
                   .origin = origin},
                  sizes);
  } else {
    collectives::all_gather_leaves(group, axis, leaves, recorded, origin);
  }
  if (!records(leaves)) return;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!has_gradient(leaves[i]) || !input_of(leaves[i]).requires_grad()) continue;
    const Tensor& value = input_of(leaves[i]);
    auto node = runtime::make_node<AllGatherNode>();
    node->strategy = strategy.shared_from_this();
    node->axis = axis < 0 ? axis + value.dim() : axis;
    const std::size_t mine = this_global_replica();
    for (std::size_t r = 0; r < mine; ++r) node->begin += sizes[i][r];
    node->size = sizes[i][mine];
    node->origin = {.forward = epoch_here(), .leaf = i};
    node->set_next_edges(torch::autograd::collect_next_edges(value));
    torch::autograd::set_history(output_of(leaves[i]),
                                 runtime::GraphNodePtr<torch::autograd::Node>(node));
  }
}

}  // namespace cohort::internal::strategy
