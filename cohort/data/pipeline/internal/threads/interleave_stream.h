// SPDX-License-Identifier: Apache-2.0
//
// interleave: a dataset for every element, read in turns, here or by background threads.
#pragma once

#include <functional>
#include <memory>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/pipeline/internal/threads/stage_tuner.h"

namespace cohort::internal::data {

/// What the function makes of an argument; its number comes with it. Called by one thread at a
/// time, in the order of the arguments.
using OpenDataset = std::function<NodePtr(const Element& argument, int64_t index)>;

struct InterleaveSetting {
  int cycle_length = 4;
  int64_t block_length = 1;
  int threads = 1;  ///< 1: the thread that reads; more: so many background threads.
  std::unique_ptr<StageTuner> tuner = {};  ///< Instead of threads.
  bool ordered = true;                     ///< False: who has nothing ready misses its turn.
};

/// Threads open as many datasets in advance as there are threads, and read up to 16 elements (or a
/// block) of each; less where elements are large.
/// Blocks: the destructor waits for elements that are being read.
std::unique_ptr<ElementStream> make_interleave_stream(OpenDataset open,
                                                      std::unique_ptr<ElementStream> input,
                                                      InterleaveSetting setting);

}  // namespace cohort::internal::data
