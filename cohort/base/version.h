// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort {

/// Cohort's version, "major.minor.patch"; the build reads it here.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace cohort
