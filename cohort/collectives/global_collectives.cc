// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/global_collectives.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/worker_collectives.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal::collectives {
namespace {

using Kind = CollectiveLeaf::Kind;
using Leaves = std::span<const CollectiveLeaf>;
using Calls = runtime::Brought<CollectiveCall>;

constexpr const char* kReduceAll = "[replica_context.all_reduce] ";
constexpr const char* kGatherAll = "[replica_context.all_gather] ";
// One name for all of them: which it is, is for check_same_call().
constexpr const char* kMeeting = "a collective of all workers";

const Tensor& input_tensor(const CollectiveLeaf& leaf) {
  return *static_cast<const Tensor*>(leaf.in);
}
Tensor& result_tensor(const CollectiveLeaf& leaf) { return *static_cast<Tensor*>(leaf.out); }
IndexedSlices& result_slices(const CollectiveLeaf& leaf) {
  return *static_cast<IndexedSlices*>(leaf.out);
}

void check_calls_of_group(Calls all) {
  for (std::size_t r = 1; r < all.size(); ++r) check_same_call(all[0], all[r], r);
}

// What workers have to bring alike.
std::string leaf_text(const CollectiveLeaf& leaf) {
  switch (leaf.kind) {
    case Kind::kTensor: {
      const Tensor& value = input_tensor(leaf);
      return str_cat(dtype_name(value.scalar_type()), bracketed(value.sizes()));
    }
    case Kind::kSlices: {
      const auto& slices = *static_cast<const IndexedSlices*>(leaf.in);
      return str_cat("rows of ", dtype_name(slices.values.scalar_type()),
                     bracketed(slices.dense_shape));
    }
    case Kind::kNumber:
      return str_cat("a number of type ", leaf.type);
    case Kind::kNone:
      return "nothing";
  }
  return "";
}

// Of a gather the sizes along the axis may differ: gather_across() compares the rest.
std::string call_text(const CollectiveCall& call) {
  std::string out = call.origin.forward == 0 ? "" : "the backward pass of ";
  if (call.kind == CollectiveCall::Kind::kGather) {
    return out + str_cat("all_gather of ", call.origin.nest.text(), ", ", call.leaves.size(),
                         " leaves, along axis ", call.axis);
  }
  out += str_cat("all_reduce of ", reduce_op_name(call.op), " of ", call.origin.nest.text());
  for (std::size_t i = 0; i < call.leaves.size(); ++i) {
    out += (i == 0 ? " (" : ", ") + leaf_text(call.leaves[i]);
  }
  return out + ")";
}

// The leaves whose numbers are many: each worker's replicas share the work on them.
std::vector<CollectiveLeaf> without_numbers(Leaves leaves) {
  std::vector<CollectiveLeaf> out;
  for (const CollectiveLeaf& leaf : leaves) {
    if (leaf.kind != Kind::kNumber) out.push_back(leaf);
  }
  return out;
}

Bytes bytes_at(const Tensor& t) {
  return {static_cast<std::byte*>(t.mutable_data_ptr()), static_cast<std::size_t>(t.nbytes())};
}

// What a worker's replicas have added up, for all workers: one result of each worker, in place.
void exchange_sums(Communicator& communicator, const CollectiveCall& call, std::size_t replicas) {
  const bool mean = call.op == ReduceOp::kMean;
  const ReduceOp step = mean ? ReduceOp::kSum : call.op;
  const auto count = static_cast<double>(communicator.size()) * static_cast<double>(replicas);
  std::vector<Communicator::Pending> pending;
  std::vector<std::pair<Tensor, Tensor>> staged;  // a device's sums, by way of the host
  for (std::size_t i = 0; i < call.leaves.size(); ++i) {
    if (call.leaves[i].kind != Kind::kTensor) continue;
    Tensor sum = result_tensor(call.leaves[i]);
    if (!sum.is_cpu()) sum = staged.emplace_back(sum, sum.cpu()).second;
    pending.push_back(
        communicator.start_all_reduce(bytes_at(sum), sum.scalar_type(), step, {.tag = i}));
  }
  for (Communicator::Pending& one : pending) one.wait();
  for (const auto& [there, here] : staged) there.copy_(here);
  for (const CollectiveLeaf& leaf : call.leaves) {
    if (leaf.kind == Kind::kTensor && mean) divide_by_count(result_tensor(leaf), count);
    if (leaf.kind != Kind::kSlices) continue;
    IndexedSlices& rows = result_slices(leaf);
    rows = join_across(communicator, kReduceAll, step, std::span(&rows, 1));
    if (mean) rows.values = rows.values.div(count);
  }
}

// All replicas' numbers on every worker, in their order.
void reduce_numbers_of_all(Communicator& communicator, Calls all, std::size_t leaf) {
  const CollectiveLeaf& mine = all[0].leaves[leaf];
  std::vector<std::byte> here;
  for (const CollectiveCall& call : all) {
    const auto* number = static_cast<const std::byte*>(call.leaves[leaf].in);
    here.insert(here.end(), number, number + mine.bytes);
  }
  const std::vector<std::byte> numbers = gather_bytes(communicator, kReduceAll, here);
  std::vector<const void*> values;
  for (std::size_t at = 0; at < numbers.size(); at += mine.bytes) {
    values.push_back(numbers.data() + at);
  }
  mine.reduce(all[0].op, values, mine.out);
}

// What replica 0 has got, for another one.
void copy_results(Leaves from, Leaves to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].kind == Kind::kTensor) {
      result_tensor(to[i]).copy_(result_tensor(from[i]));
    } else if (from[i].kind == Kind::kSlices) {
      const IndexedSlices& rows = result_slices(from[i]);
      result_slices(to[i]) = {.values = rows.values.clone(),
                              .indices = rows.indices.clone(),
                              .dense_shape = rows.dense_shape};
    } else if (from[i].kind == Kind::kNumber) {
      std::memcpy(to[i].out, from[i].out, from[i].bytes);
    }
  }
}

struct Joined {
  std::vector<Tensor> tensors = {};  // [leaf]
  std::vector<std::vector<int64_t>> sizes = {};
};

std::vector<int64_t> sizes_of_all(Communicator& communicator, std::span<const Tensor> values,
                                  int64_t axis) {
  std::vector<int64_t> here;
  for (const Tensor& value : values) here.push_back(value.size(axis));
  const auto bytes = gather_bytes(communicator, kGatherAll, std::as_bytes(std::span(here)));
  std::vector<int64_t> all(bytes.size() / sizeof(int64_t));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

Joined join_all(Communicator& communicator, Calls all, bool with_sizes) {
  Joined joined;
  for (std::size_t i = 0; i < all[0].leaves.size(); ++i) {
    std::vector<Tensor> values;
    for (const CollectiveCall& call : all) {
      values.push_back(input_tensor(call.leaves[i]).detach());
    }
    const int64_t axis = reductions::check_joinable(kGatherAll, values, all[0].axis);
    joined.tensors.push_back(
        gather_across(communicator, kGatherAll, cohort::concat(values, axis), axis));
    if (with_sizes) joined.sizes.push_back(sizes_of_all(communicator, values, axis));
  }
  return joined;
}

}  // namespace

void global_all_reduce(runtime::ReplicaGroup& group, Communicator& communicator, ReduceOp op,
                       Leaves leaves, const CollectiveOrigin& origin) {
  const at::NoGradGuard no_grad;
  for (const CollectiveLeaf& leaf : leaves) {
    if (leaf.kind == Kind::kTensor) reductions::check_reducible(kReduceAll, op, input_tensor(leaf));
  }
  const std::vector<CollectiveLeaf> many = without_numbers(leaves);
  const ReduceOp step = op == ReduceOp::kMean ? ReduceOp::kSum : op;
  if (!many.empty()) all_reduce_leaves(&group, step, many, origin);
  const CollectiveCall mine{.op = op, .leaves = leaves, .origin = origin};
  const auto first = group.merge(kMeeting, mine, [&](Calls all) {
    check_calls_of_group(all);
    check_same_on_workers(communicator, kReduceAll, "collective", call_text(mine));
    exchange_sums(communicator, mine, all.size());
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].kind == Kind::kNumber) reduce_numbers_of_all(communicator, all, i);
    }
    return leaves;
  });
  if (group.size() == 1) return;
  if (current_replica() > 0) copy_results(*first, leaves);
  group.barrier();  // until then replica 0's are read
}

void global_all_gather(runtime::ReplicaGroup& group, Communicator& communicator, int64_t axis,
                       Leaves leaves, std::span<std::vector<int64_t>> sizes,
                       const CollectiveOrigin& origin) {
  const at::NoGradGuard no_grad;
  check_gatherable(leaves);
  const CollectiveCall mine{
      .kind = CollectiveCall::Kind::kGather, .axis = axis, .leaves = leaves, .origin = origin};
  const auto joined = group.merge(kMeeting, mine, [&](Calls all) {
    check_calls_of_group(all);
    check_same_on_workers(communicator, kGatherAll, "collective", call_text(mine));
    return join_all(communicator, all, !sizes.empty());
  });
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& all = joined->tensors[i];
    result_tensor(leaves[i]) = group.size() == 1 ? all : all.clone();
    if (!sizes.empty()) sizes[i] = joined->sizes[i];
  }
}

}  // namespace cohort::internal::collectives
