// SPDX-License-Identifier: Apache-2.0
//
// What workers have to have alike for equal bits: which Cohort and which LibTorch, and what the
// latter makes of this processor.
#pragma once

#include <string>

namespace cohort::internal::strategy {

/// "Cohort 0.1.0 (commit 0123456789ab), LibTorch 2.15.0, CPU capability AVX2 (ATEN_CPU_CAPABILITY
/// lowers it)". The commit is that at which the build was configured.
std::string build_name();

}  // namespace cohort::internal::strategy
