// SPDX-License-Identifier: Apache-2.0
//
// Makers of the nodes that more than their verb needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/runtime/device.h"

namespace cohort::internal::data {

/// `arguments`, as DatasetNode's; without: a checksum of the rows.
NodePtr make_rows_node(std::string operation, std::shared_ptr<const RowSource> source,
                       std::string arguments = {}, ElementKind kind = ElementKind::kValues);
/// The dataset of a window: elements in memory.
NodePtr make_elements_node(std::vector<Element> elements);
/// The elements in memory for uploads to `device` (rows/upload.h); positions are the input's.
NodePtr make_staging_node(NodePtr input, const Device& device);
NodePtr make_zip_node(std::vector<NodePtr> inputs, std::vector<std::string> names = {});

}  // namespace cohort::internal::data
