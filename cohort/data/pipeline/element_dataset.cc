// SPDX-License-Identifier: Apache-2.0
//
// Elements that are datasets.
#include "cohort/base/check.h"
#include "cohort/data/dataset.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::data {

Element::Element(const Dataset& dataset) : value_(dataset.node()) {}

std::shared_ptr<const internal::DatasetNode> Element::dataset_node() const {
  const Element& self = resolved();
  if (const auto* node = std::get_if<internal::NodePtr>(&self.value_)) return *node;
  const Tuple* tuple = tuple_part();
  if (tuple == nullptr || tuple->parts.empty()) refuse("a dataset");
  std::vector<internal::NodePtr> parts;
  for (const Element& part : tuple->parts) parts.push_back(part.dataset_node());
  return internal::make_tuple_node(std::move(parts), tuple->names);
}

Dataset Element::dataset() const { return Dataset(dataset_node()); }

}  // namespace cohort::data
