// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/padding.h"

#include <c10/core/Scalar.h>

#include <cmath>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/batching.h"
#include "cohort/data/core/internal/rows/deferred_element.h"

namespace cohort::internal::data {
namespace {

/// The least shape that holds every part, or what is fixed.
Shape common_shape(std::span<const Element> parts, const Padding& padding, std::size_t leaf) {
  const TensorSpec first = parts.front().spec().leaf();
  Shape fixed =
      padding.shapes.empty() ? Shape(first.shape.size(), kUnknownDim) : padding.shapes.at(leaf);
  for (int64_t& d : fixed) d = d == kUnknownDim ? padding.unknown_to : d;
  Shape out(fixed.size(), 0);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const TensorSpec part = parts[i].spec().leaf();
    COHORT_CHECK_ARG(part.shape.size() == fixed.size() && part.dtype == first.dtype, padding.where,
                     " expected ", first.is_string ? "string" : dtype_name(first.dtype), " with ",
                     fixed.size(), " dimensions, got ", part.to_string(), " as number ", i,
                     " of the batch");
    for (std::size_t d = 0; d < fixed.size(); ++d) {
      const int64_t size = part.shape[d];
      COHORT_CHECK_ARG(fixed[d] == kUnknownDim || size <= fixed[d], padding.where,
                       " expected elements that fit in ", bracketed(fixed), ", got ",
                       part.to_string(), " as number ", i, " of the batch");
      out[d] = fixed[d] == kUnknownDim ? std::max(out[d], size) : fixed[d];
    }
  }
  out.insert(out.begin(), static_cast<int64_t>(parts.size()));
  return out;
}

void copy_into_corner(const Tensor& batch, std::size_t index, const Tensor& from) {
  Tensor to = batch.select(0, static_cast<int64_t>(index));
  for (int64_t d = 0; d < from.dim(); ++d) to = to.narrow(d, 0, from.size(d));
  to.copy_(from);
}

/// Strings have no padding value but the empty one.
Element pad_strings(std::span<const Element> parts, const Shape& shape) {
  // The place of each string in `all`; 0 is the padding.
  const Tensor places = full(shape, 0, kInt64);
  std::vector<std::string> all = {""};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto first = static_cast<int64_t>(all.size());
    if (parts[i].rows() < 0) {
      all.push_back(parts[i].string());
    } else {
      all.insert(all.end(), parts[i].strings().begin(), parts[i].strings().end());
    }
    const Tensor numbers = arange(static_cast<int64_t>(all.size()) - first) + first;
    copy_into_corner(places, i, numbers.reshape(parts[i].spec().leaf().shape));
  }
  std::vector<std::string> out;
  for (int64_t place : to_vector<int64_t>(places)) {
    out.push_back(all[static_cast<std::size_t>(place)]);
  }
  return Element(std::move(out), shape);
}

/// Errors: InvalidArgument if `dtype` has no such value.
void check_padding_value(const std::string& where, double value, DType dtype) {
  if (!c10::isIntegralType(dtype, true)) return;
  const int bits = dtype == kBool ? 1 : 8 * static_cast<int>(c10::elementSize(dtype));
  const bool is_signed = dtype != kBool && c10::isSignedType(dtype);
  const double least = is_signed ? -std::ldexp(1.0, bits - 1) : 0;
  COHORT_CHECK_ARG(value >= least && value < std::ldexp(1.0, is_signed ? bits - 1 : bits) &&
                       value == std::trunc(value),
                   where, " expected a padding value that ", dtype_name(dtype), " has, got ",
                   value);
}

Element pad_leaves(std::span<const Element> parts, const Padding& padding, std::size_t leaf) {
  const Shape shape = common_shape(parts, padding, leaf);
  if (parts.front().is_string()) return pad_strings(parts, shape);
  const double value = padding.values.empty()       ? 0
                       : padding.values.size() == 1 ? padding.values.front()
                                                    : padding.values.at(leaf);
  const DType dtype = parts.front().tensor().scalar_type();
  check_padding_value(padding.where, value, dtype);
  Tensor out = full(shape, value, dtype);
  for (std::size_t i = 0; i < parts.size(); ++i) copy_into_corner(out, i, parts[i].tensor());
  return out;
}

void check_not_ragged(const std::string& where, const ElementSpec& spec) {
  COHORT_CHECK_ARG(!spec.is_ragged(), where, " expected tensors and strings, got ragged rows ",
                   spec.to_string(), "; ragged_batch keeps them");
}

ElementSpec padded_leaf(const std::string& where, const TensorSpec& spec, const Shape* fixed,
                        int64_t rows) {
  if (!spec.known_rank) return spec;
  TensorSpec out = spec;
  COHORT_CHECK_ARG(fixed == nullptr || fixed->size() == spec.shape.size(), where,
                   " expected a shape of ", spec.shape.size(), " dimensions for ", spec.to_string(),
                   ", got ", bracketed(*fixed));
  for (std::size_t d = 0; d < out.shape.size(); ++d) {
    const int64_t known = fixed != nullptr ? (*fixed)[d] : kUnknownDim;
    COHORT_CHECK_ARG(known == kUnknownDim || known >= spec.shape[d], where,
                     " expected a shape that holds ", spec.to_string(), ", got ",
                     bracketed(*fixed));
    // Equal dimensions stay what they are; the longest of unknown ones is unknown.
    if (known != kUnknownDim) out.shape[d] = known;
  }
  out.shape.insert(out.shape.begin(), rows);
  return out;
}

ElementSpec padded_tree(const std::string& where, const ElementSpec& spec,
                        const std::vector<Shape>& shapes, int64_t rows, std::size_t& leaf) {
  COHORT_CHECK_ARG(!spec.is_dataset(), where, " expected tensors and strings, got ",
                   spec.to_string(), "; flat_map makes elements of datasets");
  check_not_ragged(where, spec);
  if (spec.is_leaf()) {
    const Shape* fixed = shapes.empty() ? nullptr : &shapes.at(leaf);
    ++leaf;
    return padded_leaf(where, spec.leaf(), fixed, rows);
  }
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < spec.size(); ++i) {
    parts.push_back(padded_tree(where, spec[i], shapes, rows, leaf));
    if (!spec.names().empty()) named.emplace_back(spec.names()[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

void check_counts(const std::string& where, std::size_t leaves, std::size_t shapes,
                  std::size_t values) {
  COHORT_CHECK_ARG(shapes == 0 || shapes == leaves, where, " expected ", leaves,
                   " shapes, one for each component, got ", shapes);
  COHORT_CHECK_ARG(values <= 1 || values == leaves, where, " expected 1 or ", leaves,
                   " padding values, one for each component, got ", values);
}

}  // namespace

Element pad_elements(std::span<const Element> parts, const Padding& padding) {
  const std::size_t leaves = parts.front().spec().flat().size();
  check_counts(padding.where, leaves, padding.shapes.size(), padding.values.size());
  std::size_t leaf = 0;
  return combine_elements(parts, padding.where, [&](std::span<const Element> column) {
    if (column.front().is_ragged()) check_not_ragged(padding.where, column.front().spec());
    return pad_leaves(column, padding, leaf++);
  });
}

ElementSpec padded_spec(const std::string& where, const ElementSpec& spec,
                        const std::vector<Shape>& shapes, const std::vector<double>& values,
                        int64_t rows) {
  if (spec.is_unknown()) return spec;
  check_counts(where, spec.flat().size(), shapes.size(), values.size());
  std::size_t leaf = 0;
  return padded_tree(where, spec, shapes, rows, leaf);
}

void put_elements(StateWriter& out, const std::vector<Element>& elements) {
  out.put_int(static_cast<int64_t>(elements.size()));
  for (const Element& element : elements) out.put_element(element);
}

std::vector<Element> get_elements(StateReader& in) {
  std::vector<Element> out(static_cast<std::size_t>(in.get_count(in.bytes_left())));
  for (Element& element : out) element = in.get_element();
  return out;
}

}  // namespace cohort::internal::data
