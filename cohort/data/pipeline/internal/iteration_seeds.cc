// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/pipeline/internal/iteration_seeds.h"

#include "cohort/runtime/random.h"

namespace cohort::internal::data {

uint64_t seed_or_default(std::optional<uint64_t> given) {
  return given ? *given
               : mix_bits(mix_bits(runtime::current_seed()) + runtime::next_operation_number());
}

}  // namespace cohort::internal::data
