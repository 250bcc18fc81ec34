// SPDX-License-Identifier: Apache-2.0
//
// Batches of elements whose shapes differ.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/data/core/element.h"
#include "cohort/data/pipeline/internal/nodes.h"

namespace cohort::internal {

using CombineFunction = std::function<Element(std::span<const Element>)>;

struct Padding {
  std::string where;                 ///< Begins the texts of errors.
  std::vector<Shape> shapes;         ///< Of the leaves in order; empty: nothing is fixed.
  std::vector<double> values;        ///< Of the leaves, or one for all; empty: 0.
  int64_t unknown_to = kUnknownDim;  ///< Length of what no shape fixes; unknown: the longest.
};

/// Where elements of a length go, and what becomes of them.
struct BucketPlan {
  ElementLength length;
  std::vector<int64_t> boundaries;
  std::vector<int64_t> batch_sizes;
  std::vector<CombineFunction> combine;
  bool drop_remainder = false;
  bool bounded = false;  ///< Nothing may be as long as the last boundary.
  std::vector<double> padding_values;
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

}  // namespace cohort::internal
