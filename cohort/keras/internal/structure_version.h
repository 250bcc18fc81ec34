// SPDX-License-Identifier: Apache-2.0
//
// When layers change; internal.
#pragma once

#include <cstdint>

namespace cohort::keras::internal {

/// Grows whenever a layer anywhere gets a weight or a sub-layer, is frozen or thawed. Threads:
/// thread-safe. Cost: a load.
uint64_t structure_version();

}  // namespace cohort::keras::internal
