// SPDX-License-Identifier: Apache-2.0
//
// Who cannot work with variables whose rows are given to one id after another.
#pragma once

#include <span>
#include <string>

#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

/// Errors: Unimplemented if rows of one of them are given to other ids (DynamicTable), with which
///         `what`, of the optimizer `name`, would have to begin anew. Cost: a load where none are.
void check_rows_stay(const std::string& name, std::span<const Variable> variables,
                     const char* what);

}  // namespace cohort::keras::internal
