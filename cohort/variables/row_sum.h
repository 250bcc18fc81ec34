// SPDX-License-Identifier: Apache-2.0
//
// Sparse gradients with every row once: what row-wise updates work on. On GPUs the values stay
// there, while the rows' numbers are the host's: whoever makes a RowSum of a GPU's indices waits
// for them. (A dense gradient needs no such wait: PostWriter::takes_rows.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/values/indexed_slices.h"

namespace cohort::internal::variables {

/// Rows of a table, each once, in ascending order, and their values.
/// Shapes: values [rows.size(), the table's other axes...], contiguous.
struct RowSum {
  std::vector<int64_t> rows = {};
  Tensor values = {};

  /// Values in one row.
  std::size_t width() const;
  /// A tensor of `shape`, zero in all other rows.
  Tensor to_dense(const Shape& shape) const;
  /// Gives the values away.
  IndexedSlices to_slices(const Shape& shape) &&;
};

/// Which rows indices name, each once, in ascending order, and which of them each index is.
struct UniqueRows {
  std::vector<int64_t> rows = {};
  std::vector<int64_t> position = {};  ///< rows[position[i]] is index i.
};
/// Shapes: indices [n] of int32 or int64, none below 0. Cost: proportional to n. Blocks: for
/// indices on a GPU, until it has them.
UniqueRows unique_rows(const Tensor& indices);

/// Adds repeated rows in the order in which they stand: the bits of slices.to_dense(). Indices are
/// those of rows of the table, as VariableImpl::check_rows says.
/// Owns: values of its own. Cost: proportional to the slices, whatever the table's size.
/// Blocks: as unique_rows.
RowSum sum_rows(const IndexedSlices& slices, DType dtype);
/// Adds the parts in their order, of the rows [first, last): the bits of adding them dense. Of one
/// part the values are a view. On GPUs the sum is in the memory of the calling thread's device.
RowSum sum_rows(std::span<const RowSum* const> parts, int64_t first, int64_t last);

}  // namespace cohort::internal::variables
