// SPDX-License-Identifier: Apache-2.0
//
// Rows made of other rows, or of elements: what the datasets of windows read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/core/internal/rows/row_source.h"

namespace cohort::internal::data {

using RowSourcePtr = std::shared_ptr<const RowSource>;

/// Some rows of `source`, in the order of their numbers.
RowSourcePtr make_subset_rows(RowSourcePtr source, std::vector<int64_t> rows);
/// Elements that all look like `spec`.
RowSourcePtr make_element_rows(std::vector<Element> elements, ElementSpec spec);
/// One component of the rows of `source`.
RowSourcePtr make_component_rows(RowSourcePtr source, std::size_t component);
/// Tuples of rows of sources of one size. All components of one source in their order are that
/// source again.
RowSourcePtr make_tuple_rows(std::vector<RowSourcePtr> parts, std::vector<std::string> names);

}  // namespace cohort::internal::data
