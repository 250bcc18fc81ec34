// SPDX-License-Identifier: Apache-2.0
//
// Reading environment variables that describe a job.
#pragma once

#include <optional>
#include <string>

namespace cohort::internal::cluster {

/// Unset and empty are the same.
std::optional<std::string> job_variable(const char* name);
/// Errors: FailedPrecondition that says `hint` unless it is set.
std::string needed_variable(const char* name, const char* hint);
/// A whole number of at least `least`. Errors: InvalidArgument that names `what`.
int whole_number(const std::string& what, const std::string& text, int least);

}  // namespace cohort::internal::cluster
