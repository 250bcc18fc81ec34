// SPDX-License-Identifier: Apache-2.0
//
// Batches that a function makes of their elements: batch, padded_batch, ragged_batch.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "cohort/data/core/internal/dataset_node.h"

namespace cohort::internal::data {

using CombineFunction = std::function<Element(std::span<const Element>)>;

struct CombineParams {
  std::string operation;
  ElementSpec spec;  ///< Of the batches.
  int64_t size = 1;
  bool drop_remainder = false;
  CombineFunction combine;
  std::string more_arguments = {};  ///< What `combine` was told, as DatasetNode::arguments.
  /// Equal elements are stacked: rows in memory and records of files need not become elements.
  bool only_stacks = false;
};

Dataset with_combined_batches(const NodePtr& input, CombineParams params);

}  // namespace cohort::internal::data
