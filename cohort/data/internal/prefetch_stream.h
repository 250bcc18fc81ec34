// SPDX-License-Identifier: Apache-2.0
//
// A stream that a background thread reads ahead.
#pragma once

#include <memory>

#include "cohort/data/internal/dataset_node.h"

namespace cohort::internal {

/// Reads ahead by `capacity` elements. Order: errors take their place among the elements.
std::unique_ptr<ElementStream> make_prefetch_stream(std::unique_ptr<ElementStream> input,
                                                    std::size_t capacity);

}  // namespace cohort::internal
