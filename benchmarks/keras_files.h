// SPDX-License-Identifier: Apache-2.0
//
// A `.keras` file of 256 MB, saved and loaded, beside what the disk does with as many bytes.
#pragma once

#include <vector>

#include "ways.h"

namespace cohort::bench {

/// "save" and "load": Cohort's way, then the bare file's, which is written to the disk or read from
/// it.
std::vector<WaysCase> keras_file_cases();

}  // namespace cohort::bench
