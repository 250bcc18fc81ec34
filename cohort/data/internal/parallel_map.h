// SPDX-License-Identifier: Apache-2.0
//
// map with several calls at once, in the order of the input.
#pragma once

#include <functional>
#include <memory>

#include "cohort/data/internal/dataset_node.h"

namespace cohort::internal {

/// The element's number comes with it.
using MapCall = std::function<Element(const Element&, int64_t index)>;

/// Runs `call` on `threads` background threads, which read ahead by at most twice their number.
/// Order: results and errors arrive in the order of the input.
/// Blocks: the destructor waits for calls that have begun.
std::unique_ptr<ElementStream> make_parallel_map_stream(MapCall call,
                                                        std::unique_ptr<ElementStream> input,
                                                        int threads);

}  // namespace cohort::internal
