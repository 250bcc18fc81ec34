// SPDX-License-Identifier: Apache-2.0
//
// Writes to rows of tables in the memory of a device. CPUs have theirs where they are used; another
// kind of device brings its own (cohort/cuda).
#pragma once

#include "cohort/runtime/tensor.h"

namespace cohort::internal::values {

enum class RowOp { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

/// Threads: thread-safe, on different tables.
class RowKernels {
 public:
  virtual ~RowKernels() = default;
  /// Row indices[i] of `to` becomes op(itself, row i of `rows`), i = 0, 1, ... in this order also
  /// where an index repeats: the bits of a CPU. Indices that are no row's are passed over, as
  /// TensorFlow does on GPUs: nobody waits to check them.
  /// Shapes: to [n, ...] and rows [m, ...] contiguous, of one dtype: a real number of any size but
  ///         16 bits unsigned and the like, for kAdd and kSub also a complex one, for kUpdate any;
  ///         indices [m] of int32 or int64. Blocks: never.
  /// Errors: Unimplemented for another dtype. Cost: sorts the indices; an index that stands k times
  ///         takes k additions one after another.
  virtual void combine(RowOp op, Tensor& to, const Tensor& indices, const Tensor& rows) = 0;
};

/// Null for CPUs. Errors: Unimplemented for another kind of device that has none.
RowKernels* row_kernels(const Tensor& table);

}  // namespace cohort::internal::values
