// SPDX-License-Identifier: Apache-2.0
//
// What a weight is kept as, whichever type a layer computes in.
#pragma once

#include "cohort/variables/variable.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {

/// What the calling replica's leaf holds; of an empty handle undefined.
inline Tensor kept_value(const Variable& weight) {
  return weight ? weight.impl().leaf().tensor : Tensor();
}

}  // namespace cohort::keras::internal
