// SPDX-License-Identifier: Apache-2.0
//
// One of the datasets that interleave reads in turns.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "cohort/data/pipeline/internal/threads/interleave_stream.h"
#include "cohort/data/pipeline/internal/threads/ring.h"

namespace cohort::internal::data {

/// An open dataset and what was read ahead of it. Threads: thread-compatible.
struct InterleaveSource {
  struct Item {
    Element element;
    std::exception_ptr error;
  };

  Element argument;  ///< What the function made it of.
  int64_t index = 0;
  std::unique_ptr<ElementStream> stream;
  Ring<Item> items;              ///< Read ahead.
  bool ended = false;            ///< There is nothing but the items.
  bool busy = false;             ///< A thread reads its stream.
  std::exception_ptr no_source;  ///< What reading the argument or opening threw instead.
};

void save_source(StateWriter& out, const InterleaveSource& source);
/// Errors: InvalidArgument for bytes that save_source did not write; what `open` throws.
std::unique_ptr<InterleaveSource> restore_source(StateReader& in, const OpenDataset& open);

}  // namespace cohort::internal::data
