// SPDX-License-Identifier: Apache-2.0
//
// The node behind Dataset::csv.
#pragma once

#include <string>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal {

NodePtr make_csv_node(std::vector<std::string> files, const CsvOptions& options);

}  // namespace cohort::internal
