// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/report.h"

namespace cohort::conformance {
namespace {

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return "`" + cell(text) + "`"; }

std::string about(const Case& c) { return cell(c.area) + ": " + cell(c.what); }

const Result* find_result(const std::vector<Result>& results, const Case& c, Strategies one) {
  for (const Result& result : results) {
    if (result.played == &c && result.strategy == one) return &result;
  }
  return nullptr;
}

std::string verdict(const Expectation& expectation) {
  if (expectation.differs.empty()) return "pass";
  return "differs on purpose: " + cell(expectation.differs);
}

void add_row(std::string& out, std::string_view id, const std::string& what,
             const std::string& strategies, const std::string& expected,
             const std::string& result) {
  for (const std::string& text : {std::string(id), what, strategies, expected, result}) {
    out += "| " + text + (text.empty() ? "" : " ");
  }
  out += "|\n";
}

// One row for those that passed together, one for each that did not.
void add_expectation(std::string& out, const Case& c, const Expectation& expectation, bool first,
                     const std::vector<Result>& results) {
  std::string passed;
  std::vector<std::string> failed;
  for (const Strategies one : kEachStrategy) {
    if ((expectation.on & one) == 0) continue;
    const Result* result = find_result(results, c, one);
    const std::string title(strategy_title(one));
    if (result != nullptr && result->passed) {
      passed += (passed.empty() ? "" : ", ") + title;
    } else {
      failed.push_back(title);
    }
  }
  const std::string what = first ? about(c) : "";
  if (!passed.empty()) {
    add_row(out, c.id, what, passed, code(expectation.value), verdict(expectation));
  }
  for (const std::string& title : failed) {
    add_row(out, c.id, what, title, code(expectation.value), "FAILS");
  }
}

struct Counts {
  int passing = 0, differing = 0, open = 0;
};

Counts count_cases() {
  Counts counts;
  for (const Case& c : all_cases()) {
    bool differs = false;
    for (const Expectation& expectation : c.expected) differs |= !expectation.differs.empty();
    ++(c.expected.empty() ? counts.open : differs ? counts.differing : counts.passing);
  }
  return counts;
}

}  // namespace

std::string report(const std::vector<Result>& results) {
  const Counts counts = count_cases();
  std::string out =
      "# Conformance\n\n"
      "Numbered cases of `tf.distribute` and Keras, played by `tests/conformance` under every\n"
      "strategy that they speak of. The test writes this file, and fails while it is out of date:\n"
      "`build/dev/tests/conformance/conformance_test --write-table`.\n\n"
      "`PR(a|b)` is a value per replica, or the components of a variable; `a; b` are several "
      "things\n"
      "that one case looks at; an error stands for its being thrown.\n\n";
  out += std::to_string(counts.passing) + " cases pass, " + std::to_string(counts.differing) +
         " differ from TensorFlow on purpose, " + std::to_string(counts.open) +
         " are open.\n\n"
         "| Case | About | Strategies | Expected | Result |\n|---|---|---|---|---|\n";
  for (const Case& c : all_cases()) {
    if (c.expected.empty()) {
      add_row(out, c.id, about(c), "", "", "open: waits for " + cell(c.waits_for));
    }
    for (const Expectation& expectation : c.expected) {
      add_expectation(out, c, expectation, &expectation == &c.expected.front(), results);
    }
  }
  return out;
}

}  // namespace cohort::conformance
