// SPDX-License-Identifier: Apache-2.0
//
// Writes to some rows of a tensor, for the scatter operations of variables.
#pragma once

#include <string>

#include "cohort/values/indexed_slices.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal::variables {

/// "[variable.scatter_add] ", for error texts.
const char* operation_name(Scatter kind);

/// Errors: InvalidArgument that names the variable, what was expected and what came: unless the
///         indices are int32 or int64 [n] of rows that the variable has, and the values are
///         [n, shape[1:]...] of the variable's dtype.
void check_scattered(const char* operation, const VariableImpl& variable,
                     const IndexedSlices& slices);

/// Applies checked slices to a contiguous tensor, row by row in the order in which they stand, so
/// that repeated indices accumulate and of several updates the last one stays.
void scatter_rows(Tensor& to, Scatter kind, const IndexedSlices& slices);

}  // namespace cohort::internal::variables
