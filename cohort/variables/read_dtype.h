// SPDX-License-Identifier: Apache-2.0
//
// In which type a thread reads weights: what mixed precision is made of. Internal.
#pragma once

#include <optional>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::variables {

/// From now on Variable::value() of trainable variables of a floating type gives them in this type,
/// by a recorded operation: their gradients come back in their own. Nothing: as they are.
/// Threads: of the calling one.
void read_weights_as(std::optional<DType> dtype);

}  // namespace cohort::internal::variables
