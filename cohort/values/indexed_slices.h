// SPDX-License-Identifier: Apache-2.0
//
// Some rows of a large tensor: what the gradient of an embedding table is.
//
//   IndexedSlices g{.values = rows, .indices = ids, .dense_shape = {10000, 64}};
//   Tensor whole = g.to_dense();
#pragma once

#include <iosfwd>

#include "cohort/runtime/tensor.h"

namespace cohort {

/// Rows `indices` of a tensor of `dense_shape`; indices may repeat (their rows add).
/// Shapes: values [n, dense_shape[1:]...], indices [n] of int32 or int64.
/// TF: tf.IndexedSlices.
struct IndexedSlices {
  Tensor values = {};
  Tensor indices = {};
  Shape dense_shape = {};

  /// A new tensor of dense_shape, zero in the rows that are not named.
  /// Order: repeated rows add in the order in which they stand.
  /// Errors: InvalidArgument if the shapes do not fit or an index is outside the table.
  Tensor to_dense() const;
};

/// "IndexedSlices(indices=[0 2], values=..., dense_shape=[3, 2])".
std::ostream& operator<<(std::ostream& out, const IndexedSlices& slices);

}  // namespace cohort
