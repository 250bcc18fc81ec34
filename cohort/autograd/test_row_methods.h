// SPDX-License-Identifier: Apache-2.0
//
// What trains rows in tests of tables: without slots, with one that begins above zero, with rules
// that go over all rows, and lazily.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/update_rules/rules.h"

namespace cohort::testing {

struct RowMethod {
  const char* name;
  std::vector<double> slots;
  std::function<update_rules::Rule(int64_t step)> rule;
  bool lazy = false;
};

inline const std::vector<RowMethod>& row_methods() {
  using update_rules::Rule;
  static const std::vector<RowMethod> all = {
      {"sgd", {}, [](int64_t) { return Rule(update_rules::SgdStep{.learning_rate = 0.125}); }},
      {"adagrad",
       {0.1},
       [](int64_t) { return Rule(update_rules::AdagradStep{.learning_rate = 0.5}); }},
      {"adam", {0, 0}, [](int64_t step) { return Rule(update_rules::adam_step({}, step)); }},
      {"lazy adam",
       {0, 0},
       [](int64_t step) { return Rule(update_rules::adam_step({}, step)); },
       true}};
  return all;
}

}  // namespace cohort::testing
