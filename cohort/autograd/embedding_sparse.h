// SPDX-License-Identifier: Apache-2.0
//
// One row for each example of those of all its ids, of which it may have any number, or none.
//
//   const Variable table(ones({1000, 64}));
//   // Example 0 has the ids 1 and 3, example 1 has none, example 2 has 1.
//   SparseIds ids{.indices = tensor({0, 0, 0, 1, 2, 0}, kInt64).reshape({3, 2}),
//                 .values = tensor({1, 3, 1}, kInt64), .dense_shape = {3, 2}};
//   Tensor means = safe_embedding_lookup_sparse(table, ids);  // [3, 64]; zeros for example 1
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/variables/variable.h"

namespace cohort {

/// What a tf.sparse.SparseTensor of ids has, in any order.
struct SparseIds {
  Tensor indices;          ///< [n, rank] of int64: where each id stands.
  Tensor values;           ///< [n] of int32 or int64.
  Shape dense_shape = {};  ///< Its last axis is the ids of one example.
};

/// How an example's rows become one: their sum, weighted; by the sum of the weights; or by the root
/// of the sum of their squares.
enum class EmbeddingCombiner { kSum, kMean, kSqrtN };

struct SparseLookupOptions {
  std::optional<Tensor> weights = {};  ///< [n], of the ids; 1 where there are none.
  EmbeddingCombiner combiner = EmbeddingCombiner::kMean;
  std::optional<int64_t> default_id = {};  ///< Of who has none, with weight 1; else zeros.
  std::optional<double> max_norm = {};     ///< Rows that are longer are scaled to it first.
};

/// Ids below 0 do not count, nor, but for kSum, those whose weight is not above 0.
/// Shapes: table [n, rest...], ids of dense_shape [examples..., k], result [examples..., rest...].
/// Errors: InvalidArgument for ids as embedding_lookup's, but for those below 0, for tensors of
///         other shapes or types than these, and for indices outside dense_shape.
/// TF: tf.nn.safe_embedding_lookup_sparse.
Tensor safe_embedding_lookup_sparse(const Variable& table, const SparseIds& ids,
                                    const SparseLookupOptions& options = {});

}  // namespace cohort
