// SPDX-License-Identifier: Apache-2.0
//
// A stream that a background thread reads ahead.
#pragma once

#include <memory>
#include <optional>

#include "cohort/data/core/internal/consumer_wait.h"
#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/pipeline/internal/threads/buffer_tuner.h"

namespace cohort::internal::data {

struct PrefetchSetting {
  std::size_t capacity = 2;
  std::optional<BufferTuner> tuner = {};  ///< Instead of the capacity.
  /// How much the reader waits: told to the steps below.
  std::shared_ptr<ConsumerWait> consumer_wait;
};

/// Reads ahead. Order: errors take their place among the elements.
std::unique_ptr<ElementStream> make_prefetch_stream(std::unique_ptr<ElementStream> input,
                                                    PrefetchSetting setting);

}  // namespace cohort::internal::data
