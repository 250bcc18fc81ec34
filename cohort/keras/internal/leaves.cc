// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/leaves.h"

#include <string>
#include <utility>

namespace cohort::keras::internal {
namespace {

using data::Element;

void add_leaves(const Element& nest, std::vector<Tensor>& leaves) {
  if (!nest.is_tuple()) return leaves.push_back(nest.tensor());
  for (std::size_t i = 0; i < nest.size(); ++i) add_leaves(nest[i], leaves);
}

// From `next` on.
Element rebuilt(const Element& nest, const std::vector<Tensor>& leaves, std::size_t& next) {
  if (!nest.is_tuple()) return leaves[next++];
  std::vector<Element> parts;
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < nest.size(); ++i) {
    parts.push_back(rebuilt(nest[i], leaves, next));
    if (!nest.names().empty()) named.emplace_back(nest.names()[i], parts.back());
  }
  return named.empty() ? Element::tuple(std::move(parts)) : Element::named(std::move(named));
}

}  // namespace

std::vector<Tensor> leaves_of(const Element& nest) {
  std::vector<Tensor> leaves;
  add_leaves(nest, leaves);
  return leaves;
}

Element with_leaves(const Element& nest, const std::vector<Tensor>& leaves) {
  std::size_t next = 0;
  return rebuilt(nest, leaves, next);
}

}  // namespace cohort::keras::internal
