// SPDX-License-Identifier: Apache-2.0
//
// Reductions of several tensors: arithmetic and checks, on the calling thread.
#pragma once

#include <span>
#include <vector>

#include "cohort/reductions/reduce_op.h"
#include "cohort/runtime/tensor.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal::reductions {

/// The tensors on one device, for what works on one at a time; those that are there as they are.
std::vector<Tensor> brought_to(c10::Device place, std::span<const Tensor> values);

/// Element-wise over tensors of equal shape and dtype, strictly in their order: the same bits
/// every time. Of one tensor it is that tensor. Where they are on several devices, on the first
/// one's.
/// Errors: InvalidArgument that names both shapes or dtypes; for a kMean of integers, for kSum,
///         kMean and kProduct of bool, for kMin and kMax of complex numbers.
Tensor reduce_in_order(ReduceOp op, std::span<const Tensor> values);

/// The same, into new tensors on the first one's device: none shares memory with another or with
/// the values. Cost: one pass over the values, whatever the number of copies.
std::vector<Tensor> reduce_to_copies(ReduceOp op, std::span<const Tensor> values,
                                     std::size_t copies);

/// Joins the rows in order; kMean divides them by the number of values.
/// Errors: Unimplemented for another reduction; InvalidArgument if dtypes or shapes differ.
IndexedSlices join_slices(const char* operation, ReduceOp op,
                          std::span<const IndexedSlices> values);

/// Errors: InvalidArgument for a dtype that `op` does not take.
void check_reducible(const char* operation, ReduceOp op, DType dtype);

/// Errors: InvalidArgument unless this is a dense tensor in memory that there are kernels for (the
///         CPU's) of a dtype that `op` takes.
void check_reducible(const char* operation, ReduceOp op, const Tensor& value);

/// Errors: InvalidArgument that names both shapes or dtypes, and the replica of `other`.
void check_same(const char* operation, const Tensor& first, const Tensor& other,
                std::size_t replica);

/// The axis counted from the front.
/// Errors: InvalidArgument for scalars, an axis that is not there, and tensors that differ in
///         dtype, or in shape but for `axis`; it names the first replica that differs.
int64_t check_joinable(const char* operation, std::span<const Tensor> values, int64_t axis);

/// A tensor whose elements stand in a row; itself where they do.
Tensor in_a_row(const Tensor& value);

/// Elements [begin, end) of arrays in a row: every output gets the reduction of the sources in
/// their order. An output may be a source, but no other output. `divisor` is that of kMean.
/// Errors: what LibTorch throws for a dtype that it cannot reduce.
struct RangeReduction {
  ReduceOp op;
  DType dtype;
  std::span<const void* const> sources;
  std::span<void* const> outs;
  int64_t begin;
  int64_t end;
  double divisor = 1;
  bool stream = false;  ///< Past the caches, for results that would not fit in there.
  c10::DeviceType memory = c10::kCPU;  ///< Whose addresses these are.
};
void reduce_range(const RangeReduction& range);

/// reduce_range of one kind of device. CPUs have theirs; another kind brings its own, in the same
/// order of additions, and in the order of what the calling thread has started on its device.
/// Threads: thread-safe, on disjoint ranges.
class RangeReducer {
 public:
  virtual ~RangeReducer() = default;
  virtual void reduce(const RangeReduction& range) = 0;
};
/// Returns the one before; see exchange_device_backend.
RangeReducer* exchange_range_reducer(c10::DeviceType type, RangeReducer* reducer);

/// True where reduce_range does not go through LibTorch: it then takes no memory.
bool has_kernel(ReduceOp op, DType dtype);

/// From how many bytes on, of all sources and outputs together, results go past the caches.
inline constexpr int64_t kStreamBytes = int64_t{32} << 20;

}  // namespace cohort::internal::reductions
