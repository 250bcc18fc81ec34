// SPDX-License-Identifier: Apache-2.0
//
// Strategies over which tests of training run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cohort/strategy/strategies.h"

namespace cohort::testing {

/// Of so many replicas; 0: the default strategy.
inline Strategy strategy_of(int replicas) {
  if (replicas == 0) return get_strategy();
  std::vector<Device> devices;
  for (int i = 0; i < replicas; ++i) devices.emplace_back("CPU:" + std::to_string(i));
  return MirroredStrategy(std::move(devices));
}

}  // namespace cohort::testing
