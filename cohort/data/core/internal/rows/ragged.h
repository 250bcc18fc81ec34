// SPDX-License-Identifier: Apache-2.0
//
// Ragged components (Element::ragged): rows of unlike lengths, one after the other, and where each
// begins.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "cohort/data/core/element.h"

namespace cohort::internal::data {

/// Names of its components. Others may have them, too: is_ragged() tells, never the names.
inline constexpr std::array<const char*, 2> kRaggedNames = {"values", "row_splits"};
bool has_ragged_names(const std::vector<std::string>& names);

/// Whether the splits ascend from 0 to the rows of `values`.
bool are_ragged_parts(const Element& values, const Element& row_splits);
/// Errors: InvalidArgument unless they are.
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

}  // namespace cohort::internal::data
