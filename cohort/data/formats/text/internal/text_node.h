// SPDX-License-Identifier: Apache-2.0
//
// The node behind Dataset::text_lines.
#pragma once

#include <string>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal {

NodePtr make_text_lines_node(std::vector<std::string> files, const FileOptions& options);

}  // namespace cohort::internal
