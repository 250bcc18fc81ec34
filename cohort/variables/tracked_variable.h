// SPDX-License-Identifier: Apache-2.0
//
// A variable as a value of the object that has it, for checkpoints: value() and assign().
#pragma once

#include <string>

#include "cohort/checkpoint/trackable.h"
#include "cohort/variables/variable.h"

namespace cohort::internal::variables {

/// Read and set cross-replica. Owns: the value keeps the variable alive.
TrackedValue tracked_variable(std::string name, const Variable& variable);

/// What a TrackedValue says of whose value it is.
const void* tracked_identity(const Variable& variable);

}  // namespace cohort::internal::variables
