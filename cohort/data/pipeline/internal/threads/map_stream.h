// SPDX-License-Identifier: Apache-2.0
//
// map: on the thread that reads, or with several calls at once.
#pragma once

#include <functional>
#include <memory>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/pipeline/internal/threads/stage_tuner.h"

namespace cohort::internal::data {

/// The element's number comes with it.
using MapCall = std::function<Element(const Element&, int64_t index)>;

struct MapSetting {
  int threads = 1;  ///< 1: the thread that reads; more: so many background threads.
  std::unique_ptr<StageTuner> tuner = {};  ///< Instead of threads.
  bool ordered = true;                     ///< False: results arrive as they become ready.
};

/// Calls read ahead by at most twice the number of threads.
/// Order: results and errors arrive in the order of the input, or as they become ready.
/// Blocks: the destructor waits for calls that have begun.
std::unique_ptr<ElementStream> make_map_stream(MapCall call, std::unique_ptr<ElementStream> input,
                                               MapSetting setting);

}  // namespace cohort::internal::data
