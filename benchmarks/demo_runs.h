// SPDX-License-Identifier: Apache-2.0
//
// The README's program and its twin in Keras as contenders of contention_bench: whole processes, of
// which the time of training one epoch counts.
#pragma once

#include "contention.h"
#include "places.h"

namespace cohort::bench {

/// Blocks: until all runs are done. `us` of the result is that of an epoch.
ContentionResult run_demo(const Places& places, bool peers, const ContentionOptions& options);

}  // namespace cohort::bench
