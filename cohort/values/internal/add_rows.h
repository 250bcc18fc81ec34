// SPDX-License-Identifier: Apache-2.0
//
// Rows into a dense table: LibTorch's index_add makes an operation of each row, some 50 times the
// work of its numbers where rows are short.
#pragma once

#include "cohort/values/indexed_slices.h"

namespace cohort::internal::values {

/// Adds row i of `rows` to row indices[i] of `to`, in this order.
/// Shapes: to [n, ...] contiguous, indices [m] of int32 or int64 in [0, n), rows [m, ...]: not
/// checked. Rows of another dtype are converted first; those of 16 bits add up in float32 and are
/// rounded once. On GPUs indices that are no row's are passed over, and of bool repeated ones add
/// up in any order, which makes no difference. Autograd: none; the version of `to` counts on.
void add_rows(Tensor& to, const Tensor& indices, const Tensor& rows);

/// Writes slices.to_dense() into `to`, which is contiguous.
/// Errors: those of to_dense().
void write_dense(const IndexedSlices& slices, Tensor& to);

}  // namespace cohort::internal::values
