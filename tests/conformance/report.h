// SPDX-License-Identifier: Apache-2.0
//
// What the run found, and docs/conformance.md out of it.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace cohort::conformance {

struct Result {
  const Case* played;
  Strategies strategy;
  const Expectation* expectation;
  std::string seen;
  bool passed;
};

/// The text of docs/conformance.md.
std::string report(const std::vector<Result>& results);

}  // namespace cohort::conformance
