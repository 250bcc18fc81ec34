// SPDX-License-Identifier: Apache-2.0
//
// Ragged components (Element::ragged): rows of unlike lengths, one after the other, and where each
// begins.
#pragma once

#include <span>
#include <string>

#include "cohort/data/element.h"

namespace cohort::internal {

/// True for the named components of a ragged one; of the splits, only the ends are looked at.
bool are_ragged(const Element& values, const Element& row_splits);
/// Looks at all splits. Errors: InvalidArgument.
void check_ragged_parts(const Element& values, const Element& row_splits);

/// Rows [begin, begin + count), as ragged rows. Owns: a view of the values.
Element ragged_slice(const Element& ragged, int64_t begin, int64_t count);
/// One row: [length, ...], or ragged rows.
Element ragged_row(const Element& ragged, int64_t index);

/// The rows of all parts. Errors: InvalidArgument that begins with `where` if a part is not ragged,
/// or if rows differ in structure, dtype or what follows their first dimension.
Element concatenate_ragged(std::span<const Element> parts, const std::string& where);
/// Each part as one row of ragged rows. Errors: as concatenate_ragged.
Element stack_ragged(std::span<const Element> parts, const std::string& where);
/// Tensors, or strings, as one row each; their first `levels` dimensions may differ.
/// Errors: InvalidArgument that begins with `where` if they have fewer dimensions, or others that
/// differ.
Element ragged_leaves(std::span<const Element> parts, int64_t levels, const std::string& where);

/// The spec with so many rows in every component that has a first dimension.
ElementSpec with_rows(const ElementSpec& spec, int64_t rows);

}  // namespace cohort::internal
