// SPDX-License-Identifier: Apache-2.0
//
// How workers share one dataset: by files, by elements, or at the step that the program marks.
#pragma once

#include "cohort/data/dataset.h"

namespace cohort::data {

struct AutoShardResult {
  Dataset dataset;
  AutoShardPolicy applied;  ///< Never kAuto.
};

/// The part of `dataset` that worker `index` of `num_workers` reads.
/// kOff: everything. kFile: every num_workers-th file, of text_lines, tf_records,
/// fixed_length_records, csv and image folders, and of file names from which flat_map or interleave
/// make these; shuffles of the names are replaced by one after the choice of files, so that
/// workers need no common seed, and a repeat of the names repeats a worker's own files.
/// kData: every num_workers-th element of the end of the pipeline, before prefetch and options
/// there; a shuffle before needs one seed on all workers. kHint: shard(kShardHint, 0) becomes
/// shard(num_workers, index). kAuto: kFile if there are files, and enough of them, else kData.
/// Errors: InvalidArgument for a number or index that cannot be; of kFile also if there are fewer
/// files than workers; of kFile Error kNotFound if nothing reads files.
/// Cost: kAuto and kFile call the function of flat_map or interleave with its first element.
/// TF: the auto-shard rewrite of distributed datasets.
AutoShardResult auto_shard_dataset(const Dataset& dataset, int num_workers, int index,
                                   AutoShardPolicy policy = AutoShardPolicy::kAuto);

}  // namespace cohort::data
