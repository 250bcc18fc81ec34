// SPDX-License-Identifier: Apache-2.0
//
// The node behind Dataset::fixed_length_records.
#pragma once

#include <string>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal {

NodePtr make_fixed_length_node(std::vector<std::string> files, int64_t record_bytes,
                               const FixedLengthOptions& options);

}  // namespace cohort::internal
