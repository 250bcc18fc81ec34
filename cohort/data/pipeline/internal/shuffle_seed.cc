// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/shuffle_seed.h"

#include "cohort/data/pipeline/internal/shuffle_random.h"
#include "cohort/runtime/random.h"

namespace cohort::internal {

uint64_t default_shuffle_seed() {
  return mix_bits(mix_bits(current_seed()) + next_operation_number());
}

}  // namespace cohort::internal
