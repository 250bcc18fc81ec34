// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/ragged.h"

#include <algorithm>

#include <c10/util/accumulate.h>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/packed_strings.h"

namespace cohort::internal::data {
namespace {

int64_t split_at(const Tensor& splits, int64_t index) {
  const int64_t at = index * splits.stride(0);
  const void* data = splits.const_data_ptr();
  return splits.scalar_type() == kInt32 ? static_cast<const int32_t*>(data)[at]
                                        : static_cast<const int64_t*>(data)[at];
}

Element make(Element values, const std::vector<int64_t>& splits, DType dtype = kInt64) {
  Tensor row_splits = from_vector(splits, {static_cast<int64_t>(splits.size())});
  return Element::ragged_parts(std::move(values), row_splits.to(dtype));
}

void check_ragged(std::span<const Element> parts, const std::string& where) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    COHORT_CHECK_ARG(parts[i].is_ragged(), where, " expected ragged rows like ",
                     parts.front().spec().to_string(), ", got ", parts[i].spec().to_string(),
                     " as number ", i, " of the batch");
  }
}

Element all_values(std::span<const Element> parts, const std::string& where) {
  std::vector<Element> values;
  values.reserve(parts.size());
  for (const Element& part : parts) values.push_back(part[0]);
  return concatenate_elements(values, where);
}

/// The first `levels` dimensions as one.
Element flattened(const Element& leaf, Shape shape, int64_t levels) {
  const int64_t rows = c10::multiply_integers(shape.begin(), shape.begin() + levels);
  shape.erase(shape.begin(), shape.begin() + levels);
  shape.insert(shape.begin(), rows);
  if (!leaf.is_string()) return leaf.tensor().reshape(shape);
  PackedStrings out;
  for (const std::string_view text : leaf.string_views()) out.add(text);
  return Element::packed(std::move(out), std::move(shape));
}

}  // namespace

bool has_ragged_names(const std::vector<std::string>& names) {
  return std::equal(names.begin(), names.end(), kRaggedNames.begin(), kRaggedNames.end());
}

bool are_ragged_parts(const Element& values, const Element& row_splits) {
  if (!row_splits.is_tensor()) return false;
  const Tensor& splits = row_splits.tensor();
  const bool numbers = splits.scalar_type() == kInt64 || splits.scalar_type() == kInt32;
  if (!numbers || splits.dim() != 1 || splits.size(0) < 1 || !splits.device().is_cpu()) {
    return false;
  }
  for (int64_t i = 0; i + 1 < splits.size(0); ++i) {
    if (split_at(splits, i) > split_at(splits, i + 1)) return false;
  }
  return split_at(splits, 0) == 0 && split_at(splits, splits.size(0) - 1) == values.rows();
}

void check_ragged_parts(const Element& values, const Element& row_splits) {
  COHORT_CHECK_ARG(are_ragged_parts(values, row_splits),
                   "[element.ragged] expected int64 or int32 row_splits [rows + 1] that ascend "
                   "from 0 to the rows of values, got ",
                   row_splits.has_value() ? row_splits.spec().to_string() : "none", " for ",
                   values.has_value() ? values.spec().to_string() : "none");
}

Element ragged_slice(const Element& ragged, int64_t begin, int64_t count) {
  const Tensor& splits = ragged[1].tensor();
  const int64_t first = split_at(splits, begin);
  const int64_t last = split_at(splits, begin + count);
  Tensor part = splits.narrow(0, begin, count + 1);
  return Element::ragged_parts(ragged[0].slice(first, last - first),
                               first == 0 ? part : part - first);
}

Element ragged_row(const Element& ragged, int64_t index) {
  const Tensor& splits = ragged[1].tensor();
  const int64_t first = split_at(splits, index);
  return ragged[0].slice(first, split_at(splits, index + 1) - first);
}

Element concatenate_ragged(std::span<const Element> parts, const std::string& where) {
  check_ragged(parts, where);
  DType dtype = parts.front()[1].tensor().scalar_type();
  std::vector<int64_t> splits = {0};
  for (const Element& part : parts) {
    const Tensor& own = part[1].tensor();
    const int64_t before = splits.back();
    for (int64_t i = 1; i < own.size(0); ++i) splits.push_back(before + split_at(own, i));
    if (own.scalar_type() == kInt64 || splits.back() > INT32_MAX) dtype = kInt64;
  }
  return make(all_values(parts, where), splits, dtype);
}

Element stack_ragged(std::span<const Element> parts, const std::string& where) {
  Element rows = concatenate_ragged(parts, where);
  std::vector<int64_t> splits = {0};
  for (const Element& part : parts) splits.push_back(splits.back() + part.rows());
  return make(std::move(rows), splits);
}

Element ragged_leaves(std::span<const Element> parts, int64_t levels, const std::string& where) {
  std::vector<std::vector<int64_t>> splits(static_cast<std::size_t>(levels), {0});
  std::vector<Element> flat;
  flat.reserve(parts.size());
  for (const Element& part : parts) {
    const Shape shape = part.spec().leaf().shape;
    COHORT_CHECK_ARG(static_cast<int64_t>(shape.size()) >= levels, where,
                     " expected components of at least ", levels, " dimensions, got ",
                     part.spec().to_string());
    int64_t rows = 1;
    for (std::size_t level = 0; level < splits.size(); ++level) {
      std::vector<int64_t>& of_level = splits[level];
      for (int64_t i = 0; i < rows; ++i) of_level.push_back(of_level.back() + shape[level]);
      rows *= shape[level];
    }
    flat.push_back(flattened(part, shape, levels));
  }
  Element out = concatenate_elements(flat, where);
  for (auto level = splits.rbegin(); level != splits.rend(); ++level) {
    out = make(std::move(out), *level);
  }
  return out;
}

ElementSpec with_rows(const ElementSpec& spec, int64_t rows) {
  if (spec.is_ragged()) {
    TensorSpec splits = spec[1].leaf();
    splits.shape[0] = rows == kUnknownDim ? kUnknownDim : rows + 1;
    return ElementSpec::ragged_parts(with_rows(spec[0], kUnknownDim), splits);
  }
  if (spec.is_tuple()) {
    std::vector<ElementSpec> parts;
    std::vector<std::pair<std::string, ElementSpec>> named;
    for (std::size_t i = 0; i < spec.size(); ++i) {
      parts.push_back(with_rows(spec[i], rows));
      if (!spec.names().empty()) named.emplace_back(spec.names()[i], parts.back());
    }
    return named.empty() ? ElementSpec::tuple(std::move(parts))
                         : ElementSpec::named(std::move(named));
  }
  if (!spec.is_leaf() || !spec.leaf().known_rank || spec.leaf().shape.empty()) return spec;
  TensorSpec leaf = spec.leaf();
  leaf.shape[0] = rows;
  return leaf;
}

}  // namespace cohort::internal::data
