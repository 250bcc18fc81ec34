// SPDX-License-Identifier: Apache-2.0
//
// Elements into batches, and rows out of them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/data/core/element.h"

namespace cohort::internal::data {

/// One element of which every leaf is the stack of the parts' leaves.
/// Errors: InvalidArgument that begins with `where` if structures, dtypes or shapes differ.
Element stack_elements(std::span<const Element> parts, const std::string& where);

/// The structure of the parts, with `leaf` of the parts' leaves (tensors, strings, ragged rows) at
/// every place.
/// Errors: InvalidArgument that begins with `where` if structures differ.
Element combine_elements(std::span<const Element> parts, const std::string& where,
                         const std::function<Element(std::span<const Element>)>& leaf);

/// The rows of all parts in one batch; deferred if all parts are, and have their rows in one place.
/// Errors: InvalidArgument that begins with `where` if structures, dtypes or row shapes differ.
Element concatenate_elements(std::span<const Element> parts, const std::string& where);

/// As stack_elements where `row` knows the shape, else the parts as rows of unlike lengths: in as
/// many dimensions as `row` says vary, or the first one. Scalars are stacked, ragged parts are rows
/// of ragged rows.
/// Errors: InvalidArgument that begins with `where` if structures, dtypes or other dimensions
/// differ.
Element ragged_elements(std::span<const Element> parts, const ElementSpec& row,
                        const std::string& where);
/// Of what ragged_elements returns.
ElementSpec ragged_batch_spec(const ElementSpec& row, int64_t rows);

/// Row `index` of a batch, as an element of its own.
Element unstack_element(const Element& batch, int64_t index);

}  // namespace cohort::internal::data
