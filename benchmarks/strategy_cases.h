// SPDX-License-Identifier: Apache-2.0
//
// What strategy_bench measures: pieces of a strategy's work, each beside its limit or another way
// to do the same.
#pragma once

#include <vector>

#include "ways.h"

namespace cohort::bench {

/// All cases in order. The way "limit" is what the machine allows; where it has too few cores for
/// that, a case has none.
std::vector<WaysCase> strategy_cases(const std::vector<int>& cores);

}  // namespace cohort::bench
