// SPDX-License-Identifier: Apache-2.0
//
// Makers of the nodes behind cache, snapshot, save and load; each checks its arguments when it is
// called.
#pragma once

#include <functional>
#include <string>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal {

NodePtr make_cache_node(NodePtr input, std::string file);
NodePtr make_snapshot_node(NodePtr input, std::string path, SnapshotOptions options);
void save_elements(const Dataset& dataset, const std::string& path, const SaveOptions& options);
NodePtr make_load_node(const std::string& path,
                       const std::function<Dataset(const Dataset&)>& reader);

}  // namespace cohort::internal
