// SPDX-License-Identifier: Apache-2.0
//
// Batches of elements whose shapes differ.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cohort/data/core/element.h"
#include "cohort/data/core/internal/state.h"

namespace cohort::internal::data {

struct Padding {
  std::string where;                 ///< Begins the texts of errors.
  std::vector<Shape> shapes;         ///< Of the leaves in order; empty: nothing is fixed.
  std::vector<double> values;        ///< Of the leaves, or one for all; empty: 0.
  int64_t unknown_to = kUnknownDim;  ///< Length of what no shape fixes; unknown: the longest.
};

/// Every leaf stacked, padded at the ends to one shape.
/// Errors: InvalidArgument if a leaf is longer than its shape, or structures, ranks, dtypes differ.
Element pad_elements(std::span<const Element> parts, const Padding& padding);
/// Of what pad_elements returns. Errors: InvalidArgument if `shapes` or the number of `values` does
/// not fit the spec.
ElementSpec padded_spec(const std::string& where, const ElementSpec& spec,
                        const std::vector<Shape>& shapes, const std::vector<double>& values,
                        int64_t rows);

void put_elements(StateWriter& out, const std::vector<Element>& elements);
std::vector<Element> get_elements(StateReader& in);

}  // namespace cohort::internal::data
