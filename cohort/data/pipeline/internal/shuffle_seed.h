// SPDX-License-Identifier: Apache-2.0
//
// Where shuffles without a seed get theirs.
#pragma once

#include <cstdint>

namespace cohort::internal {

/// Follows from set_seed and the number of shuffles made since, if set_seed was called; else
/// another one every time.
uint64_t default_shuffle_seed();

}  // namespace cohort::internal
