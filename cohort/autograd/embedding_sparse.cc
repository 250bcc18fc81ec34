// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/embedding_sparse.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "cohort/autograd/embedding.h"
#include "cohort/base/check.h"
#include "cohort/base/strings.h"

namespace cohort {
namespace {

constexpr const char* kSparseLookup = "[safe_embedding_lookup_sparse] ";

void check_sparse_ids(const SparseIds& ids, const SparseLookupOptions& options) {
  const auto rank = static_cast<int64_t>(ids.dense_shape.size());
  COHORT_CHECK_ARG(rank > 0, kSparseLookup, "expected a dense_shape of an axis or more, got []");
  COHORT_CHECK_ARG(ids.values.dim() == 1 &&
                       (ids.values.scalar_type() == kInt64 || ids.values.scalar_type() == kInt32),
                   kSparseLookup, "expected values of shape [n], int32 or int64, got ",
                   bracketed(shape_of(ids.values)), " of ", dtype_name(ids.values.scalar_type()));
  const Shape places{ids.values.numel(), rank};
  COHORT_CHECK_ARG(shape_of(ids.indices) == places && ids.indices.scalar_type() == kInt64,
                   kSparseLookup, "expected indices of shape ", bracketed(places),
                   " of int64, got ", bracketed(shape_of(ids.indices)), " of ",
                   dtype_name(ids.indices.scalar_type()));
  for (int64_t axis = 0; axis < rank && ids.values.numel() > 0; ++axis) {
    const Tensor at = ids.indices.select(1, axis);
    const auto size = ids.dense_shape[static_cast<std::size_t>(axis)];
    const auto least = at.min().item<int64_t>();
    const auto most = at.max().item<int64_t>();
    COHORT_CHECK_ARG(least >= 0 && most < size, kSparseLookup, "expected indices of axis ", axis,
                     " from 0 to ", size - 1, ", got ", least < 0 ? least : most);
  }
  if (!options.weights) return;
  COHORT_CHECK_ARG(shape_of(*options.weights) == shape_of(ids.values), kSparseLookup,
                   "expected a weight for each id, ", bracketed(shape_of(ids.values)), ", got ",
                   bracketed(shape_of(*options.weights)));
}

// Ids that count, whose they are, and what they weigh.
struct FlatIds {
  Tensor ids;
  Tensor examples;
  Tensor weights;
};

FlatIds that_count(const SparseIds& ids, const SparseLookupOptions& options, DType dtype) {
  Tensor example = at::zeros({ids.values.numel()}, ids.indices.options());
  for (std::size_t axis = 0; axis + 1 < ids.dense_shape.size(); ++axis) {
    example = example * ids.dense_shape[axis] + ids.indices.select(1, static_cast<int64_t>(axis));
  }
  const Tensor weights = options.weights
                             ? options.weights->to(dtype)
                             : at::ones({ids.values.numel()}, ids.values.options().dtype(dtype));
  Tensor counts = ids.values.ge(0);
  if (options.combiner != EmbeddingCombiner::kSum) counts = counts.logical_and(weights.gt(0));
  const Tensor which = counts.nonzero().reshape({-1});
  return {.ids = ids.values.to(kInt64).index_select(0, which),
          .examples = example.index_select(0, which),
          .weights = weights.index_select(0, which)};
}

void add_defaults(FlatIds& flat, int64_t id, int64_t examples) {
  Tensor is_empty = at::ones({examples}, flat.ids.options());
  is_empty.index_fill_(0, flat.examples, 0);
  const Tensor empty = is_empty.nonzero().reshape({-1});
  flat.ids = at::cat({flat.ids, at::empty({empty.numel()}, flat.ids.options()).fill_(id)});
  flat.examples = at::cat({flat.examples, empty});
  flat.weights = at::cat({flat.weights, at::ones({empty.numel()}, flat.weights.options())});
}

// One number for each of the rows, as what multiplies or divides them.
Tensor for_rows(const Tensor& numbers, const Tensor& rows) {
  Shape shape(static_cast<std::size_t>(rows.dim()), 1);
  shape[0] = numbers.numel();
  return numbers.reshape(shape);
}

}  // namespace

Tensor safe_embedding_lookup_sparse(const Variable& table, const SparseIds& ids,
                                    const SparseLookupOptions& options) {
  check_sparse_ids(ids, options);
  int64_t examples = 1;
  for (std::size_t axis = 0; axis + 1 < ids.dense_shape.size(); ++axis) {
    examples *= ids.dense_shape[axis];
  }
  FlatIds flat = that_count(ids, options, table.dtype());
  if (options.default_id) add_defaults(flat, *options.default_id, examples);

  Tensor rows = embedding_lookup(table, flat.ids);
  const Tensor whose = flat.examples.to(rows.device());
  const Tensor weights = flat.weights.to(rows.device());
  if (options.max_norm && flat.ids.numel() > 0) {
    // norm(), whose gradient at 0 is 0.
    const Tensor norms = rows.flatten(1).norm(2, {1});
    rows = rows * for_rows(*options.max_norm / norms.clamp_min(*options.max_norm), rows);
  }
  Shape shape = table.shape();
  shape[0] = examples;
  Tensor out = at::zeros(shape, rows.options()).index_add(0, whose, rows * for_rows(weights, rows));
  if (options.combiner != EmbeddingCombiner::kSum) {
    const bool is_mean = options.combiner == EmbeddingCombiner::kMean;
    Tensor by = at::zeros({examples}, rows.options())
                    .index_add(0, whose, is_mean ? weights : weights * weights);
    if (!is_mean) by = by.sqrt();
    out = out / for_rows(by + by.eq(0), out);  // who has nothing has zeros
  }
  shape.erase(shape.begin());
  shape.insert(shape.begin(), ids.dense_shape.begin(), ids.dense_shape.end() - 1);
  return out.reshape(shape);
}

}  // namespace cohort
