// SPDX-License-Identifier: Apache-2.0
//
// Errors on their way to the reader: with the place in the pipeline, or out of a saved position.
#pragma once

#include <exception>
#include <string>

#include "cohort/base/error.h"

namespace cohort::internal::data {

/// Throws the current exception again with `where` before its text, as the same class of Error
/// (any other exception as Error kUnknown), the original nested in it.
[[noreturn]] void rethrow_with_context(const std::string& where);

/// An error of the class that stands for the code.
std::exception_ptr make_error(ErrorCode code, const std::string& text);

}  // namespace cohort::internal::data
