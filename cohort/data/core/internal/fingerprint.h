// SPDX-License-Identifier: Apache-2.0
//
// What a pipeline is, for files that outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal::data {

/// Every node with its arguments and its elements' spec. Not in it: what functions compute and how
/// files are parsed.
std::string pipeline_text(const DatasetNode& node);

/// 16 hexadecimal digits (FNV-1a).
std::string short_hash(std::string_view text);

/// A hash of its values.
std::string element_text(const Element& element);

/// A checksum of all rows. Cost: reads them.
std::string rows_text(const RowSource& rows);

}  // namespace cohort::internal::data
