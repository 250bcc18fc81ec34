// SPDX-License-Identifier: Apache-2.0
//
// Readers of TFRecord files, and the node behind Dataset::tf_records.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/data/formats/internal/file_nodes.h"

namespace cohort::internal {

/// The records of one file; `operation` begins the texts of errors.
std::unique_ptr<RecordReader> open_tf_records(std::string operation, const std::string& path,
                                              const FileOptions& options);

NodePtr make_tf_records_node(std::vector<std::string> files, const FileOptions& options);

}  // namespace cohort::internal
