// SPDX-License-Identifier: Apache-2.0
//
// Elements into batches, and batches into pieces.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/data/element.h"
#include "cohort/data/options.h"

namespace cohort::internal {

/// One element of which every leaf is the stack of the parts' leaves.
/// Errors: InvalidArgument that begins with `where` if structures, dtypes or shapes differ.
Element stack_elements(std::span<const Element> parts, const std::string& where);

/// The structure of the parts, with `leaf` of the parts' leaves at every place.
/// Errors: InvalidArgument that begins with `where` if structures differ.
Element combine_elements(std::span<const Element> parts, const std::string& where,
                         const std::function<Element(std::span<const Element>)>& leaf);

/// The rows of all parts in one batch; deferred if all parts are, and have their rows in one place.
/// Errors: InvalidArgument that begins with `where` if structures, dtypes or row shapes differ.
Element concatenate_elements(std::span<const Element> parts, const std::string& where);

/// Row `index` of a batch, as an element of its own.
Element unstack_element(const Element& batch, int64_t index);

/// Rows of each of `pieces` pieces of a batch of `rows` rows. `full_rows` is the size of a full
/// batch, or kUnknownDim.
std::vector<int64_t> split_sizes(int64_t rows, int64_t full_rows, std::size_t pieces,
                                 SplitRule rule);

/// Cuts a batch into consecutive pieces; a deferred batch into deferred pieces.
/// Errors: InvalidArgument if a component has no first dimension, or another one.
void split_element(const Element& batch, std::span<const int64_t> sizes, std::span<Element> pieces);

}  // namespace cohort::internal
