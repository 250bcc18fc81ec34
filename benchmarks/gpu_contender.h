// SPDX-License-Identifier: Apache-2.0
//
// Cohort's side of gpu_bench: opens the task's `.keras` file and trains it on one device.
#pragma once

#include <string>

namespace cohort::bench {

/// Answers the lines that peers/gpu_task.py describes until `quit` or the end of the pipe. Kinds:
///   eager      a custom loop, batches on the device: run, tape, apply_gradients
///   fit        `fit` as it is by default, batches on the device
///   captured   the same, where a step that cannot be captured is an error
///   fit_eager  the same, without capturing
///   fit_host   `fit`, rows in the host's memory, batched and prefetched
/// Returns the process's exit status.
int serve_gpu_contender(const std::string& kind, const std::string& device);

}  // namespace cohort::bench
