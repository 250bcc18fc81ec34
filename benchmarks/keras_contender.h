// SPDX-License-Identifier: Apache-2.0
//
// Cohort's side of keras_bench: opens the task's `.keras` file, as peers do, and trains it by fit.
#pragma once

#include <string>

namespace cohort::bench {

/// Answers the lines that peers/keras_task.py describes until `quit` or the end of the pipe.
/// Returns the process's exit status.
int serve_keras_contender();

}  // namespace cohort::bench
