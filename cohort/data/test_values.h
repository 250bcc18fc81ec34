// SPDX-License-Identifier: Apache-2.0
//
// What the tests of every folder of data/ read out of datasets of integers.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/data/dataset.h"

namespace cohort::testing {

using Numbers = std::vector<int64_t>;

/// The integers of all elements, one after the other.
inline Numbers values(const Dataset& dataset) {
  Numbers out;
  for (const Element& e : dataset) {
    for (const int64_t v : to_vector<int64_t>(e.tensor())) out.push_back(v);
  }
  return out;
}

}  // namespace cohort::testing
