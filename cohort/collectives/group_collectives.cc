// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/group_collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "cohort/base/check.h"
#include "cohort/collectives/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal {
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
  ReduceOp op = ReduceOp::kSum;
  std::span<const CollectiveLeaf> leaves;
  c10::SmallVector<Item, 2> items;  // of the leaves that are tensors, in their order
  int64_t bytes = 0;
};
using Batches = std::span<const void* const>;

const Batch& batch_of(const void* argument) { return *static_cast<const Batch*>(argument); }
const Tensor& tensor_of(const CollectiveLeaf& leaf) { return *static_cast<const Tensor*>(leaf.in); }

const char* kind_name(const CollectiveLeaf& leaf) {
  switch (leaf.kind) {
    case Kind::kTensor:
      return "a dense tensor";
    case Kind::kSlices:
      return "indexed slices";
    case Kind::kNumber:
      return "a number";
    case Kind::kNone:
      return "nothing";
  }
  return "";
}

Batch prepare(ReduceOp op, std::span<const CollectiveLeaf> leaves) {
  Batch batch{.op = op, .leaves = leaves, .items = {}};
  for (const CollectiveLeaf& leaf : leaves) {
    if (leaf.kind != Kind::kTensor) continue;
    const Tensor& value = tensor_of(leaf);
    check_reducible(kReduce, op, value);
    Item& item = batch.items.emplace_back();
    item.value = in_a_row(value);
    item.result = at::empty(value.sizes(), value.options().requires_grad(false));
    item.data = item.value.const_data_ptr();
    item.result_data = item.result.mutable_data_ptr();
    item.dtype = value.scalar_type();
    item.bytes = static_cast<int64_t>(value.nbytes());
    batch.bytes += item.bytes;
  }
  return batch;
}

// The same question on every replica, so that all find the same error.
void check_structure(const char* operation, Batches all) {
  const Batch& first = batch_of(all[0]);
  for (std::size_t r = 1; r < all.size(); ++r) {
    const Batch& other = batch_of(all[r]);
    COHORT_CHECK_STATE(other.op == first.op, operation, "expected ", reduce_op_name(first.op),
                       " on every replica, got ", reduce_op_name(other.op), " on replica ", r);
    COHORT_CHECK_ARG(other.leaves.size() == first.leaves.size(), operation,
                     "expected values of the same structure, got ", first.leaves.size(),
                     " leaves on replica 0 and ", other.leaves.size(), " on replica ", r);
    for (std::size_t i = 0; i < first.leaves.size(); ++i) {
      COHORT_CHECK_ARG(first.leaves[i].kind == other.leaves[i].kind &&
                           first.leaves[i].reduce == other.leaves[i].reduce,
                       operation, "expected values of the same kind on every replica, got ",
                       kind_name(first.leaves[i]), " on replica 0 and ", kind_name(other.leaves[i]),
                       " on replica ", r);
    }
  }
}

void check_items(Batches all) {
  const Batch& first = batch_of(all[0]);
  for (std::size_t r = 1; r < all.size(); ++r) {
    const Batch& other = batch_of(all[r]);
    for (std::size_t i = 0; i < first.items.size(); ++i) {
      check_same(kReduce, first.items[i].value, other.items[i].value, r);
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
  const Batch& mine = batch_of(all[replica]);
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
    for (const void* argument : all) {
      const Item& theirs = batch_of(argument).items[i];
      sources.push_back(theirs.data);
      if (!alone) outs.push_back(theirs.result_data);
    }
    if (alone) outs.push_back(item.result_data);
    const auto width = static_cast<int64_t>(c10::elementSize(item.dtype));
    reduce_range({.op = mine.op,
                  .dtype = item.dtype,
                  .sources = sources,
                  .outs = outs,
                  .begin = begin / width,
                  .end = end / width,
                  .divisor = static_cast<double>(count),
                  .stream = 2 * count * item.bytes >= kStreamBytes});
  }
}

std::vector<const void*> inputs_of(Batches all, std::size_t leaf) {
  std::vector<const void*> inputs;
  for (const void* argument : all) inputs.push_back(batch_of(argument).leaves[leaf].in);
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
  for (std::size_t i = 0; i < mine.leaves.size(); ++i) {
    const CollectiveLeaf& leaf = mine.leaves[i];
    if (leaf.kind == Kind::kNumber) {
      leaf.reduce(mine.op, inputs_of(all, i), leaf.out);
    } else if (leaf.kind == Kind::kSlices) {
      *static_cast<IndexedSlices*>(leaf.out) =
          join_slices(kReduce, mine.op, values_of<IndexedSlices>(all, i));
    }
  }
}

void gather(Batches all, const Batch& mine, int64_t axis, std::span<std::vector<int64_t>> sizes) {
  check_structure(kGather, all);
  for (std::size_t i = 0; i < mine.leaves.size(); ++i) {
    const CollectiveLeaf& leaf = mine.leaves[i];
    if (leaf.kind != Kind::kTensor) continue;
    const std::vector<Tensor> values = values_of<Tensor>(all, i);
    const int64_t along = check_joinable(kGather, values, axis);
    *static_cast<Tensor*>(leaf.out) = concat(values, along);
    if (sizes.empty()) continue;
    for (const Tensor& value : values) sizes[i].push_back(value.size(along));
  }
}

// Without a group the calling thread is the only replica.
template <class Body>
void meet(ReplicaGroup* group, const void* tag, const Batch& mine, const Body& body) {
  if (group != nullptr) return group->meet(tag, &mine, body);
  const void* const argument = &mine;
  body(Batches(&argument, 1));
}

}  // namespace

void all_reduce_leaves(ReplicaGroup* group, ReduceOp op, std::span<const CollectiveLeaf> leaves) {
  static const char tag = 0;
  const at::NoGradGuard no_grad;
  Batch mine = prepare(op, leaves);
  const auto replica = static_cast<std::size_t>(std::max(0, current_replica()));
  meet(group, &tag, mine, [&](Batches all) {
    check_structure(kReduce, all);
    check_items(all);
    reduce_tensors(all, group != nullptr ? replica : 0);
    if (mine.items.size() < mine.leaves.size()) reduce_others(all, mine);
  });
  auto item = mine.items.begin();
  for (const CollectiveLeaf& leaf : leaves) {
    if (leaf.kind == Kind::kTensor) *static_cast<Tensor*>(leaf.out) = std::move(item++->result);
  }
}

Tensor all_reduce(ReplicaGroup* group, ReduceOp op, const Tensor& value) {
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

void all_gather_leaves(ReplicaGroup* group, int64_t axis, std::span<const CollectiveLeaf> leaves,
                       std::span<std::vector<int64_t>> sizes) {
  static const char tag = 0;
  const at::NoGradGuard no_grad;
  check_gatherable(leaves);
  const Batch mine{.op = ReduceOp::kSum, .leaves = leaves, .items = {}};
  meet(group, &tag, mine, [&](Batches all) { gather(all, mine, axis, sizes); });
}

}  // namespace cohort::internal
