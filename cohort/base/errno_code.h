// SPDX-License-Identifier: Apache-2.0
//
// What the system's errors are as codes of Cohort's.
#pragma once

#include "cohort/base/error.h"

namespace cohort::internal::base {

/// Of an errno that a call on a file or folder left; kUnknown for what has no code of its own.
ErrorCode code_of_errno(int error);

}  // namespace cohort::internal::base
