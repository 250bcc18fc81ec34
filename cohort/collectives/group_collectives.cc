// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/group_collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal::collectives {
namespace {

using Kind = CollectiveLeaf::Kind;

constexpr const char* kReduce = "[replica_context.all_reduce] ";
constexpr const char* kGather = "[replica_context.all_gather] ";

// Below, every replica reduces everything for itself: sharing the work would only move lines
// between caches.
constexpr int64_t kSmallBytes = 4096;
constexpr int64_t kLine = 64;

// A leaf that is a tensor, ready for others to read and write.
struct Item {
  Tensor value;  // in a row
  Tensor result;
  const void* data = nullptr;
  void* result_data = nullptr;
  DType dtype = kFloat32;
  int64_t bytes = 0;
};

// What a replica brings.
struct Batch {
  CollectiveCall call;
  c10::SmallVector<Item, 2> items = {};  // of the leaves that are tensors, in their order
  int64_t bytes = 0;
};
using Batches = runtime::Brought<Batch>;

const Tensor& tensor_of(const CollectiveLeaf& leaf) { return *static_cast<const Tensor*>(leaf.in); }

const char* kind_name(const CollectiveLeaf& leaf) {
  switch (leaf.kind) {
    case Kind::kTensor:
      return "a dense tensor";
    case Kind::kSlices:
      return "indexed slices";
    case Kind::kNumber:
      return "a number of type ";
    case Kind::kNone:
      return "nothing";
  }
  return "";
}

Batch prepare(const CollectiveCall& call) {
  Batch batch{.call = call};
  for (const CollectiveLeaf& leaf : call.leaves) {
    if (leaf.kind != Kind::kTensor) continue;
    const Tensor& value = tensor_of(leaf);
    reductions::check_reducible(kReduce, call.op, value);
    Item& item = batch.items.emplace_back();
    item.value = reductions::in_a_row(value);
    item.result = at::empty(value.sizes(), value.options().requires_grad(false));
    item.data = item.value.const_data_ptr();
    item.result_data = item.result.mutable_data_ptr();
    item.dtype = value.scalar_type();
    item.bytes = static_cast<int64_t>(value.nbytes());
    batch.bytes += item.bytes;
  }
  return batch;
}

const char* operation_of(const CollectiveCall& call) {
  return call.kind == CollectiveCall::Kind::kReduce ? kReduce : kGather;
}

// "the backward pass of all_reduce of mean"
std::string text_of(const CollectiveCall& call) {
  const std::string what = call.kind == CollectiveCall::Kind::kGather
                               ? str_cat("all_gather along axis ", call.axis)
                               : str_cat("all_reduce of ", reduce_op_name(call.op));
  return call.origin.forward == 0 ? what : str_cat("the backward pass of ", what);
}

bool is_same_pass(const CollectiveOrigin& a, const CollectiveOrigin& b) {
  return a.forward == b.forward && a.leaf == b.leaf;
}

// The same question on every replica, so that all find the same error.
void check_structure(Batches all) {
  for (std::size_t r = 1; r < all.size(); ++r) check_same_call(all[0].call, all[r].call, r);
}

void check_items(Batches all) {
  const Batch& first = all[0];
  for (std::size_t r = 1; r < all.size(); ++r) {
    const Batch& other = all[r];
    for (std::size_t i = 0; i < first.items.size(); ++i) {
      reductions::check_same(kReduce, first.items[i].value, other.items[i].value, r);
      const c10::Device one = first.items[i].value.device(), here = other.items[i].value.device();
      COHORT_CHECK_ARG(one.type() == here.type(), kReduce,
                       "expected values on devices of one kind on every replica, got one on ",
                       one.str(), " on replica 0 and one on ", here.str(), " on replica ", r);
    }
  }
}

// The replica's share of a row of all elements, [begin, end) in bytes; of one leaf in it, whole
// cache lines.
struct Share {
  int64_t begin;
  int64_t end;
  int64_t line_at_or_after(int64_t offset, int64_t bytes) const {
    return std::clamp<int64_t>((offset + kLine - 1) / kLine * kLine, 0, bytes);
  }
};

void reduce_tensors(Batches all, std::size_t replica) {
  const Batch& mine = all[replica];
  const auto count = static_cast<int64_t>(all.size());
  const bool alone = mine.bytes <= kSmallBytes;
  const auto r = static_cast<int64_t>(replica);
  const Share share =
      alone ? Share{0, mine.bytes} : Share{mine.bytes * r / count, mine.bytes * (r + 1) / count};
  c10::SmallVector<const void*, 8> sources;
  c10::SmallVector<void*, 8> outs;
  int64_t offset = 0;
  for (std::size_t i = 0; i < mine.items.size(); ++i) {
    const Item& item = mine.items[i];
    const int64_t begin = share.line_at_or_after(share.begin - offset, item.bytes);
    const int64_t end = share.line_at_or_after(share.end - offset, item.bytes);
    offset += item.bytes;
    if (begin >= end) continue;
    sources.clear();
    outs.clear();
    for (const Batch& batch : all) {
      const Item& theirs = batch.items[i];
      sources.push_back(theirs.data);
      if (!alone) outs.push_back(theirs.result_data);
    }
    if (alone) outs.push_back(item.result_data);
    const auto width = static_cast<int64_t>(c10::elementSize(item.dtype));
    reductions::reduce_range({.op = mine.call.op,
                              .dtype = item.dtype,
                              .sources = sources,
                              .outs = outs,
                              .begin = begin / width,
                              .end = end / width,
                              .divisor = static_cast<double>(count),
                              .stream = 2 * count * item.bytes >= reductions::kStreamBytes,
                              .memory = item.result.device().type()});
  }
}

std::vector<const void*> inputs_of(Batches all, std::size_t leaf) {
  std::vector<const void*> inputs;
  for (const Batch& batch : all) inputs.push_back(batch.call.leaves[leaf].in);
  return inputs;
}

template <class T>
std::vector<T> values_of(Batches all, std::size_t leaf) {
  std::vector<T> values;
  for (const void* in : inputs_of(all, leaf)) values.push_back(*static_cast<const T*>(in));
  return values;
}

// What each replica makes for itself: few numbers, and rows whose count nobody knew before.
void reduce_others(Batches all, const Batch& mine) {
  const CollectiveCall& call = mine.call;
  for (std::size_t i = 0; i < call.leaves.size(); ++i) {
    const CollectiveLeaf& leaf = call.leaves[i];
    if (leaf.kind == Kind::kNumber) {
      leaf.reduce(call.op, inputs_of(all, i), leaf.out);
    } else if (leaf.kind == Kind::kSlices) {
      *static_cast<IndexedSlices*>(leaf.out) =
          reductions::join_slices(kReduce, call.op, values_of<IndexedSlices>(all, i));
    }
  }
}

void gather(Batches all, const Batch& mine, std::span<std::vector<int64_t>> sizes) {
  check_structure(all);
  for (std::size_t i = 0; i < mine.call.leaves.size(); ++i) {
    const CollectiveLeaf& leaf = mine.call.leaves[i];
    if (leaf.kind != Kind::kTensor) continue;
    const std::vector<Tensor> values = values_of<Tensor>(all, i);
    const int64_t along = reductions::check_joinable(kGather, values, mine.call.axis);
    const c10::Device here = tensor_of(leaf).device();
    *static_cast<Tensor*>(leaf.out) = concat(reductions::brought_to(here, values), along);
    if (sizes.empty()) continue;
    for (const Tensor& value : values) sizes[i].push_back(value.size(along));
  }
}

// Without a group the calling thread is the only replica.
template <class Body>
void meet(runtime::ReplicaGroup* group, const Batch& mine, const Body& body) {
  // One name for all: which of them replicas are at is for check_structure.
  if (group != nullptr) return group->meet("a collective", mine, body);
  const void* const argument = &mine;
  body(Batches(std::span(&argument, 1)));
}

}  // namespace

void check_same_call(const CollectiveCall& first, const CollectiveCall& other,
                     std::size_t replica) {
  const char* operation = operation_of(first);
  COHORT_CHECK_STATE(other.kind == first.kind && other.op == first.op &&
                         (other.origin.forward == 0) == (first.origin.forward == 0),
                     operation, "expected the same collective on every replica, got ",
                     text_of(first), " on replica 0 and ", text_of(other), " on replica ", replica);
  COHORT_CHECK_STATE(is_same_pass(first.origin, other.origin), operation,
                     "expected the backward passes of the collectives in one order on every "
                     "replica, got those of different ones at the same time: ",
                     text_of(first), " on replica 0 and ", text_of(other), " on replica ", replica,
                     "; take the gradients of the losses in the same order everywhere");
  COHORT_CHECK_ARG(other.axis == first.axis, operation, "expected axis ", first.axis,
                   " on every replica, got ", other.axis, " on replica ", replica);
  COHORT_CHECK_ARG(other.origin.nest.has_structure_of(first.origin.nest), operation,
                   "expected values of the same structure on every replica, got ",
                   first.origin.nest.text(), " on replica 0 and ", other.origin.nest.text(),
                   " on replica ", replica);
  COHORT_CHECK_ARG(other.leaves.size() == first.leaves.size(), operation,
                   "expected values of the same structure, got ", first.leaves.size(),
                   " leaves on replica 0 and ", other.leaves.size(), " on replica ", replica);
  for (std::size_t i = 0; i < first.leaves.size(); ++i) {
    COHORT_CHECK_ARG(first.leaves[i].kind == other.leaves[i].kind &&
                         first.leaves[i].reduce == other.leaves[i].reduce,
                     operation, "expected values of the same kind on every replica, got ",
                     kind_name(first.leaves[i]), first.leaves[i].type, " on replica 0 and ",
                     kind_name(other.leaves[i]), other.leaves[i].type, " on replica ", replica);
  }
}

void all_reduce_leaves(runtime::ReplicaGroup* group, ReduceOp op,
                       std::span<const CollectiveLeaf> leaves, const CollectiveOrigin& origin) {
  const at::NoGradGuard no_grad;
  Batch mine = prepare(
      {.kind = CollectiveCall::Kind::kReduce, .op = op, .leaves = leaves, .origin = origin});
  const auto replica = static_cast<std::size_t>(std::max(0, current_replica()));
  meet(group, mine, [&](Batches all) {
    check_structure(all);
    check_items(all);
    reduce_tensors(all, group != nullptr ? replica : 0);
    if (mine.items.size() < leaves.size()) reduce_others(all, mine);
  });
  auto item = mine.items.begin();
  for (const CollectiveLeaf& leaf : leaves) {
    if (leaf.kind == Kind::kTensor) *static_cast<Tensor*>(leaf.out) = std::move(item++->result);
  }
}

Tensor all_reduce(runtime::ReplicaGroup* group, ReduceOp op, const Tensor& value) {
  Tensor result;
  const CollectiveLeaf leaf{.kind = Kind::kTensor, .in = &value, .out = &result};
  all_reduce_leaves(group, op, std::span(&leaf, 1));
  return result;
}

void check_gatherable(std::span<const CollectiveLeaf> leaves) {
  for (const CollectiveLeaf& leaf : leaves) {
    if (leaf.kind == Kind::kSlices) {
      throw Unimplemented(str_cat(kGather,
                                  "expected dense tensors, got indexed slices; make them "
                                  "dense first with to_dense()"));
    }
    COHORT_CHECK_ARG(leaf.kind == Kind::kTensor, kGather,
                     "expected tensors with an axis to join, got ", kind_name(leaf));
  }
}

void all_gather_leaves(runtime::ReplicaGroup* group, int64_t axis,
                       std::span<const CollectiveLeaf> leaves,
                       std::span<std::vector<int64_t>> sizes, const CollectiveOrigin& origin) {
  const at::NoGradGuard no_grad;
  check_gatherable(leaves);
  const Batch mine{
      .call = {
          .kind = CollectiveCall::Kind::kGather, .axis = axis, .leaves = leaves, .origin = origin}};
  meet(group, mine, [&](Batches all) { gather(all, mine, sizes); });
}

}  // namespace cohort::internal::collectives
