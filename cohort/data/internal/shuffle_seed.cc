// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/internal/shuffle_seed.h"

#include <random>

namespace cohort::internal {

uint64_t default_shuffle_seed() {
  std::random_device entropy;
  return (static_cast<uint64_t>(entropy()) << 32) | entropy();
}

}  // namespace cohort::internal
