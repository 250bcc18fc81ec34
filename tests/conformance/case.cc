// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/case.h"

#include <bit>

namespace cohort::conformance {
namespace {

struct Description {
  std::string_view title, word;
  int replicas;
};
// In the order of the bits.
constexpr Description kDescriptions[] = {
    {"Default", "Default", 1},
    {"OneDevice", "OneDevice", 1},
    {"Mirrored(1)", "Mirrored1", 1},
    {"Mirrored(2)", "Mirrored2", 2},
    {"Mirrored(2, own ops)", "MirroredOwnOps2", 2},
    {"CentralStorage(2)", "CentralStorage2", 2},
    {"Mirrored(3)", "Mirrored3", 3},
    {"Mirrored(4)", "Mirrored4", 4},
};

const Description& description(Strategies one) { return kDescriptions[std::countr_zero(one)]; }

}  // namespace

std::string_view strategy_title(Strategies one) { return description(one).title; }
std::string_view strategy_word(Strategies one) { return description(one).word; }
int replicas_of(Strategies one) { return description(one).replicas; }

const Case* find_case(std::string_view id) {
  for (const Case& c : all_cases()) {
    if (c.id == id) return &c;
  }
  return nullptr;
}

const Expectation* find_expectation(const Case& c, Strategies one) {
  for (const Expectation& expectation : c.expected) {
    if ((expectation.on & one) != 0) return &expectation;
  }
  return nullptr;
}

}  // namespace cohort::conformance
