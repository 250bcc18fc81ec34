// SPDX-License-Identifier: Apache-2.0
//
// The debugging check that mirrored copies are what they should be: equal.
#pragma once

#include "cohort/variables/variable_impl.h"

namespace cohort::internal::variables {

/// Compares a kOnWrite variable's copies bit by bit; others always pass.
/// Errors: FailedPrecondition with the first difference.
void check_equal_copies(VariableImpl& variable);

}  // namespace cohort::internal::variables
