// SPDX-License-Identifier: Apache-2.0
//
// Collectives among the replicas of one group: every replica calls, all work at the same time.
//
//   group.run([&](int replica) {
//     Tensor sum = all_reduce(&group, ReduceOp::kSum, gradient);
//   });
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cohort/collectives/options.h"
#include "cohort/runtime/tensor.h"
#include "cohort/values/nest.h"

namespace cohort::internal::runtime {
class ReplicaGroup;
}  // namespace cohort::internal::runtime
namespace cohort::internal::collectives {

/// Reduces numbers of one type (`values` point to them, in replica order) into `out`. One function
/// per type: it also tells types apart.
using ReduceNumbers = void (*)(ReduceOp op, std::span<const void* const> values, void* out);

/// One leaf of a nest on its way through a collective.
struct CollectiveLeaf {
  enum class Kind { kTensor, kSlices, kNumber, kNone };
  Kind kind = Kind::kNone;         ///< kNone: nothing on any replica (a Gradient may be so).
  const void* in = nullptr;        ///< Tensor, IndexedSlices or number.
  void* out = nullptr;             ///< Of the same type; assigned when all replicas are done.
  ReduceNumbers reduce = nullptr;  ///< Of a kNumber.
  std::size_t bytes = 0;           ///< Of a kNumber.
  const char* type = "";           ///< Of a kNumber: "int64", the same on every worker.
};

/// What else has to agree where replicas meet. Threads: read by the others at the meeting.
struct CollectiveOrigin {
  values::NestRef nest = {};  ///< What the leaves are of.
  uint64_t forward = 0;       ///< In a backward pass, the epoch of the collective itself.
  std::size_t leaf = 0;       ///< And which of its leaves, where each has a pass of its own.
};

/// What one replica calls: everything that the others have to call alike.
struct CollectiveCall {
  enum class Kind { kReduce, kGather };
  Kind kind = Kind::kReduce;
  ReduceOp op = ReduceOp::kSum;
  int64_t axis = 0;
  std::span<const CollectiveLeaf> leaves = {};
  CollectiveOrigin origin = {};
};
/// Errors: FailedPrecondition that names both calls unless both are the same collective, of the
///         same direction; InvalidArgument that names both nests if these are unlike.
void check_same_call(const CollectiveCall& first, const CollectiveCall& other, std::size_t replica);

/// Reduces all leaves at one meeting. Each replica adds its share of the elements, strictly in
/// replica order, and writes it into every replica's result, so that each input is read and each
/// result written once: the same bits for any timing. Sparse leaves join their rows.
/// `group`: null is one replica without the others. Order: a merge point.
/// Errors: on every replica alike: FailedPrecondition if the others are at something else;
///         InvalidArgument if number, kinds, shapes or dtypes of the leaves differ, naming both and
///         the replica, and as reduce_in_order; Unimplemented as join_slices.
/// Cost: two meetings; memory is taken for the results and for inputs that do not stand in a row.
void all_reduce_leaves(runtime::ReplicaGroup* group, ReduceOp op,
                       std::span<const CollectiveLeaf> leaves, const CollectiveOrigin& origin = {});
Tensor all_reduce(runtime::ReplicaGroup* group, ReduceOp op, const Tensor& value);

/// Errors: Unimplemented for kSlices, InvalidArgument for other leaves that are no tensors.
void check_gatherable(std::span<const CollectiveLeaf> leaves);

/// Joins the tensors of all leaves along `axis` in replica order, at one meeting; `sizes`, if not
/// empty, gets each leaf's sizes along its axis, one per replica.
/// Errors: as above, as check_gatherable, and InvalidArgument as check_joinable.
void all_gather_leaves(runtime::ReplicaGroup* group, int64_t axis,
                       std::span<const CollectiveLeaf> leaves,
                       std::span<std::vector<int64_t>> sizes = {},
                       const CollectiveOrigin& origin = {});

}  // namespace cohort::internal::collectives
