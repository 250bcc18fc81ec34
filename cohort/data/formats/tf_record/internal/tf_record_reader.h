// SPDX-License-Identifier: Apache-2.0
//
// Reads TFRecord files, for Dataset::tf_records and the files of elements.
#pragma once

#include <memory>
#include <string>

#include "cohort/data/formats/internal/file_nodes.h"

namespace cohort::internal::data {

/// The records of one file; `operation` begins the texts of errors.
std::unique_ptr<RecordReader> open_tf_records(std::string operation, const std::string& path,
                                              const FileOptions& options);

}  // namespace cohort::internal::data
