// SPDX-License-Identifier: Apache-2.0
//
// What gpu_bench prints and writes.
#pragma once

#include <string>
#include <vector>

#include "gpu_rounds.h"

namespace cohort::bench {

/// A table of a task: a line for each contender, and how Cohort stands to the fastest peer.
/// Ratios are the contender's median by that of Cohort's fastest loop or fit.
std::string gpu_table(const GpuTable& table);

/// The line of "adam".
std::string gpu_update_line(const GpuUpdate& update);

/// All samples. Errors: FailedPrecondition where the file cannot be written.
void write_gpu_json(const GpuOptions& options, const std::vector<GpuTable>& tables,
                    const GpuUpdate& update);

}  // namespace cohort::bench
