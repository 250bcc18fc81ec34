// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/rows/batching.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <cstddef>
#include <cstring>

#include "cohort/base/check.h"
#include "cohort/data/internal/rows/deferred_element.h"
#include "cohort/data/internal/rows/packed_strings.h"

namespace cohort::internal {
namespace {

/// Calls `leaf` for the leaves at one place of all parts, and builds the structure again.
template <class Leaf>
Element combine(std::span<const Element> parts, const std::string& where, const Leaf& leaf) {
  const Element& first = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool same = parts[i].is_tuple() == first.is_tuple() &&
                      parts[i].is_string() == first.is_string() &&
                      parts[i].size() == first.size() && parts[i].names() == first.names();
    COHORT_CHECK_ARG(same, where, " expected elements like ", first.spec().to_string(), ", got ",
                     parts[i].spec().to_string(), " as number ", i, " of the batch");
  }
  if (!first.is_tuple()) return leaf(parts);
  std::vector<Element> out;
  std::vector<std::pair<std::string, Element>> named;
  std::vector<Element> column(parts.size());
  for (std::size_t c = 0; c < first.size(); ++c) {
    for (std::size_t i = 0; i < parts.size(); ++i) column[i] = parts[i][c];
    out.push_back(combine(std::span<const Element>(column), where, leaf));
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

/// The same structure with `leaf` applied to every leaf.
template <class Leaf>
Element transform(const Element& element, const Leaf& leaf) {
  if (!element.is_tuple()) return leaf(element);
  std::vector<Element> out;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < element.size(); ++i) {
    out.push_back(transform(element[i], leaf));
    if (!element.names().empty()) named.emplace_back(element.names()[i], out.back());
  }
  return named.empty() ? Element::tuple(std::move(out)) : Element::named(std::move(named));
}

}  // namespace

Element combine_elements(std::span<const Element> parts, const std::string& where,
                         const std::function<Element(std::span<const Element>)>& leaf) {
  return combine(parts, where, leaf);
}

Element stack_elements(std::span<const Element> parts, const std::string& where) {
  return combine(parts, where,
                 [&](std::span<const Element> leaves) { return stack_leaves(leaves, where); });
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
  return combine(parts, where, [&](std::span<const Element> leaves) {
    return concatenate_leaves(leaves, where);
  });
}

Element unstack_element(const Element& batch, int64_t index) {
  return transform(batch, [&](const Element& leaf) -> Element {
    if (leaf.is_string()) return row_of_strings(leaf, index);
    return leaf.tensor().select(0, index);
  });
}

}  // namespace cohort::internal
