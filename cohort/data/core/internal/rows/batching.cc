// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/rows/batching.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <cstddef>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/rows/deferred_element.h"
#include "cohort/data/core/internal/rows/packed_strings.h"
#include "cohort/data/core/internal/rows/ragged.h"

namespace cohort::internal::data {
namespace {

/// Calls `leaf` for the leaves at one place of all parts, and `ragged` for ragged components, and
/// builds the structure again.
template <class Leaf, class Ragged>
Element combine(std::span<const Element> parts, const std::string& where, const Leaf& leaf,
                const Ragged& ragged) {
  const Element& first = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool same = parts[i].is_tuple() == first.is_tuple() &&
                      parts[i].is_string() == first.is_string() &&
                      parts[i].size() == first.size() && parts[i].names() == first.names() &&
                      parts[i].is_ragged() == first.is_ragged();
    COHORT_CHECK_ARG(same, where, " expected elements like ", first.spec().to_string(), ", got ",
                     parts[i].spec().to_string(), " as number ", i, " of the batch");
  }
  if (!first.is_tuple()) return leaf(parts);
  if (first.is_ragged()) return ragged(parts, where);
  std::vector<Element> out;
  std::vector<std::pair<std::string, Element>> named;
  std::vector<Element> column(parts.size());
  for (std::size_t c = 0; c < first.size(); ++c) {
    for (std::size_t i = 0; i < parts.size(); ++i) column[i] = parts[i][c];
    out.push_back(combine(std::span<const Element>(column), where, leaf, ragged));
    if (!first.names().empty()) named.emplace_back(first.names()[c], out.back());
  }
  return named.empty() ? Element::tuple(std::move(out)) : Element::named(std::move(named));
}

Shape string_shape(const Element& strings) {
  return strings.rows() < 0 ? Shape() : strings.spec().leaf().shape;
}

void append_strings(PackedStrings& out, const Element& part) {
  if (part.rows() < 0) return out.add(part.string());
  for (const std::string_view text : part.string_views()) out.add(text);
}

Element stack_strings(std::span<const Element> parts, const std::string& where) {
  Shape shape = string_shape(parts.front());
  PackedStrings out;
  for (const Element& part : parts) {
    COHORT_CHECK_ARG(string_shape(part) == shape, where,
                     " expected equal shapes and dtypes in a batch, got ",
                     parts.front().spec().to_string(), " and ", part.spec().to_string());
    append_strings(out, part);
  }
  shape.insert(shape.begin(), static_cast<int64_t>(parts.size()));
  return Element::packed(std::move(out), std::move(shape));
}

Element concatenate_strings(std::span<const Element> parts, const std::string& where) {
  Shape shape = string_shape(parts.front());
  shape.front() = 0;
  PackedStrings out;
  for (const Element& part : parts) {
    const Shape one = string_shape(part);
    COHORT_CHECK_ARG(std::equal(one.begin() + 1, one.end(), shape.begin() + 1, shape.end()), where,
                     " expected batches whose rows have equal shapes and dtypes, got ",
                     parts.front().spec().to_string(), " and ", part.spec().to_string());
    append_strings(out, part);
    shape.front() += one.front();
  }
  return Element::packed(std::move(out), std::move(shape));
}

/// Whether its values lie in memory as they are, one after the other.
bool is_plain(const Tensor& t) {
  return t.device().is_cpu() && t.layout() == at::kStrided && t.is_contiguous() &&
         !t.requires_grad() && !t.is_conj() && !t.is_neg();
}

/// Cost: at::stack makes a view of every part first, which for small ones is most of its time.
Tensor stack_plain(std::span<const Element> parts) {
  const Tensor& first = parts.front().tensor();
  Shape shape(first.sizes().begin(), first.sizes().end());
  shape.insert(shape.begin(), static_cast<int64_t>(parts.size()));
  const Tensor out = empty(shape, first.scalar_type());
  const std::size_t bytes = first.nbytes();
  if (bytes == 0) return out;
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  for (const Element& part : parts) {
    std::memcpy(to, part.tensor().const_data_ptr(), bytes);
    to += bytes;
  }
  return out;
}

Element stack_leaves(std::span<const Element> parts, const std::string& where) {
  if (parts.front().is_string()) return stack_strings(parts, where);
  const Tensor& first = parts.front().tensor();
  bool plain = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor& t = parts[i].tensor();
    COHORT_CHECK_ARG(t.sizes() == first.sizes() && t.scalar_type() == first.scalar_type(), where,
                     " expected equal shapes and dtypes in a batch, got ",
                     parts.front().spec().to_string(), " and, as number ", i, ", ",
                     parts[i].spec().to_string());
    plain = plain && is_plain(t);
  }
  if (plain) return stack_plain(parts);
  std::vector<Tensor> tensors;
  for (const Element& part : parts) tensors.push_back(part.tensor());
  return at::stack(tensors);
}

Element concatenate_leaves(std::span<const Element> parts, const std::string& where) {
  if (parts.front().is_string()) return concatenate_strings(parts, where);
  std::vector<Tensor> tensors;
  tensors.reserve(parts.size());
  for (const Element& part : parts) {
    const Tensor& t = part.tensor();
    const Tensor& first = parts.front().tensor();
    COHORT_CHECK_ARG(t.scalar_type() == first.scalar_type() && t.dim() == first.dim() &&
                         t.dim() > 0 && t.sizes().slice(1) == first.sizes().slice(1),
                     where, " expected batches whose rows have equal shapes and dtypes, got ",
                     parts.front().spec().to_string(), " and ", part.spec().to_string());
    tensors.push_back(t);
  }
  return at::cat(tensors);
}

Element row_of_strings(const Element& batch, int64_t index) {
  Shape shape = string_shape(batch);
  shape.erase(shape.begin());
  const Element row = batch.slice(index, 1);
  if (shape.empty()) return std::string(row.string_views().front());
  return Element(row.strings(), std::move(shape));
}

}  // namespace

Element combine_elements(std::span<const Element> parts, const std::string& where,
                         const std::function<Element(std::span<const Element>)>& leaf) {
  return combine(parts, where, leaf,
                 [&](std::span<const Element> ragged, const std::string&) { return leaf(ragged); });
}

Element stack_elements(std::span<const Element> parts, const std::string& where) {
  return combine(
      parts, where, [&](std::span<const Element> leaves) { return stack_leaves(leaves, where); },
      stack_ragged);
}

Element concatenate_elements(std::span<const Element> parts, const std::string& where) {
  std::vector<std::shared_ptr<const DeferredElement>> sources;
  for (const Element& part : parts) {
    auto source = part.uncomputed();
    if (source == nullptr) break;
    sources.push_back(std::move(source));
  }
  if (sources.size() == parts.size()) {
    Element joined = sources.front()->join(sources);
    if (joined.has_value()) return joined;
  }
  return combine(
      parts, where,
      [&](std::span<const Element> leaves) { return concatenate_leaves(leaves, where); },
      concatenate_ragged);
}

namespace {

/// Dimensions, from the first one on, in which elements may differ; -1: nothing is known.
int64_t ragged_levels(const TensorSpec& leaf) {
  if (!leaf.known_rank) return -1;
  const auto last = std::find(leaf.shape.rbegin(), leaf.shape.rend(), kUnknownDim);
  return leaf.shape.rend() - last;
}

}  // namespace

Element ragged_elements(std::span<const Element> parts, const ElementSpec& row,
                        const std::string& where) {
  const std::vector<TensorSpec> leaves = row.flat();
  std::size_t next_leaf = 0;
  return combine(
      parts, where,
      [&](std::span<const Element> column) {
        int64_t levels = next_leaf < leaves.size() ? ragged_levels(leaves[next_leaf]) : -1;
        ++next_leaf;
        if (levels < 0) levels = column.front().rows() < 0 ? 0 : 1;
        return levels == 0 ? stack_leaves(column, where) : ragged_leaves(column, levels, where);
      },
      [&](std::span<const Element> column, const std::string&) {
        next_leaf += column.front().spec().flat().size();
        return stack_ragged(column, where);
      });
}

ElementSpec ragged_batch_spec(const ElementSpec& row, int64_t rows) {
  if (row.is_unknown()) return row;
  if (row.is_leaf()) {
    int64_t levels = ragged_levels(row.leaf());
    if (levels < 0) return {};
    if (levels == 0) return batched_spec(row, rows);
    TensorSpec values = row.leaf();
    values.shape.erase(values.shape.begin(), values.shape.begin() + (levels - 1));
    values.shape.front() = kUnknownDim;
    ElementSpec out = values;
    for (; levels > 1; --levels) out = ElementSpec::ragged(std::move(out));
    return ElementSpec::ragged(std::move(out), rows);
  }
  if (row.is_dataset() || row.is_ragged()) return batched_spec(row, rows);
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < row.size(); ++i) {
    parts.push_back(ragged_batch_spec(row[i], rows));
    if (!row.names().empty()) named.emplace_back(row.names()[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

Element unstack_element(const Element& batch, int64_t index) {
  if (batch.is_string()) return row_of_strings(batch, index);
  if (!batch.is_tuple()) return batch.tensor().select(0, index);
  if (batch.is_ragged()) return ragged_row(batch, index);
  std::vector<Element> out;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    out.push_back(unstack_element(batch[i], index));
    if (!batch.names().empty()) named.emplace_back(batch.names()[i], out.back());
  }
  return named.empty() ? Element::tuple(std::move(out)) : Element::named(std::move(named));
}

}  // namespace cohort::internal::data
