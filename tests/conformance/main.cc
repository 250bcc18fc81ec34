// SPDX-License-Identifier: Apache-2.0
//
// Makes a test of every case and strategy, plays them, and holds the table against what they saw.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "cohort/testing/deadline.h"
#include "tests/conformance/notation.h"
#include "tests/conformance/report.h"
#include "tests/conformance/trial.h"

namespace cohort::conformance {
namespace {

std::vector<Result> g_results;
std::size_t g_trials = 0;
bool g_write_table = false;

std::string play(const Body& body, Strategies one) {
  try {
    return body.play(Trial(one));
  } catch (const std::exception& error) {
    return std::string("threw ") + error.what();
  }
}

class TrialTest : public ::testing::Test {
 public:
  TrialTest(const Body& body, const Case& c, Strategies one) : body_(body), case_(c), one_(one) {}
  void TestBody() override {
    const std::string seen =
        testing::run_with_deadline(std::chrono::seconds(60), [&] { return play(body_, one_); });
    const Expectation* expectation = find_expectation(case_, one_);
    const bool passed = matches(expectation->value, seen) && !HasFailure();
    g_results.push_back({&case_, one_, expectation, seen, passed});
    EXPECT_TRUE(passed) << case_.what << "\n  expected " << expectation->value << "\n  saw      "
                        << seen;
  }

 private:
  const Body& body_;
  const Case& case_;
  const Strategies one_;
};

class TableTest : public ::testing::Test {
 public:
  explicit TableTest(void (*check)()) : check_(check) {}
  void TestBody() override { check_(); }

 private:
  void (*const check_)();
};

void every_case_has_its_test() {
  std::set<std::string_view> played, listed;
  for (const Body& body : all_bodies()) {
    EXPECT_TRUE(played.insert(body.id).second) << "two tests of " << body.id;
    const Case* c = find_case(body.id);
    EXPECT_TRUE(c != nullptr && !c->expected.empty()) << body.name << " has no expectation";
  }
  for (const Case& c : all_cases()) {
    EXPECT_TRUE(listed.insert(c.id).second) << c.id << " is listed twice";
    EXPECT_NE(c.expected.empty(), c.waits_for.empty()) << c.id << ": expected or open, not both";
    EXPECT_EQ(played.count(c.id), c.expected.empty() ? 0U : 1U) << c.id;
    Strategies seen = 0;
    for (const Expectation& expectation : c.expected) {
      EXPECT_NE(expectation.on, 0U) << c.id;
      EXPECT_EQ(seen & expectation.on, 0U) << c.id << ": two expectations of one strategy";
      seen |= expectation.on;
    }
  }
}

void notation_tells_values_apart() {
  EXPECT_TRUE(matches("PR(0.1|[1, 2])", "PR(0.10000001|[1,2])"));
  EXPECT_FALSE(matches("PR(0|1)", "PR(0|1.00001)"));
  EXPECT_FALSE(matches("PR(0|1)", "PR(0)"));
  EXPECT_FALSE(matches("[1, 2]", "[12]"));
  EXPECT_FALSE(matches("1; ok", "1; InvalidArgument"));
  EXPECT_FALSE(matches("", ""));
  EXPECT_EQ(mutations("PR(0|true); ok").size(), 4U);
}

// What a test compares with is the table alone, and all of it: any other value there fails it.
void changing_any_value_fails_its_test() {
  std::size_t changed = 0;
  for (const Result& result : g_results) {
    const std::vector<std::string> all = mutations(result.expectation->value);
    EXPECT_FALSE(all.empty()) << result.played->id;
    for (const std::string& other : all) {
      ++changed;
      EXPECT_FALSE(matches(other, result.seen))
          << result.played->id << " still passes with " << other;
    }
  }
  std::printf("%zu changes to the table, each fails its test\n", changed);
}

void table_is_the_committed_one() {
  if (g_results.size() != g_trials) GTEST_SKIP() << "only some of the cases were played";
  const std::string table = report(g_results);
  if (g_write_table) {
    std::ofstream(COHORT_CONFORMANCE_TABLE) << table;
    return;
  }
  std::ifstream file(COHORT_CONFORMANCE_TABLE);
  const std::string committed{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(committed == table) << COHORT_CONFORMANCE_TABLE
                                  << " is out of date: run conformance_test --write-table";
}

void register_trials() {
  for (const Body& body : all_bodies()) {
    const Case* c = find_case(body.id);
    if (c == nullptr) continue;  // every_case_has_its_test reports it
    for (const Strategies one : kEachStrategy) {
      if (find_expectation(*c, one) == nullptr) continue;
      ++g_trials;
      const std::string name = std::string(body.name) + "/" + std::string(strategy_word(one));
      ::testing::RegisterTest("Conformance", name.c_str(), nullptr, nullptr, body.file, body.line,
                              [&body, c, one]() -> ::testing::Test* {
                                return new TrialTest(body, *c, one);  // NOLINT: gtest's
                              });
    }
  }
}

// Registered last, and so run last: they look at what the trials saw.
void register_table_tests() {
  const auto add = [](const char* name, void (*check)()) {
    ::testing::RegisterTest("Table", name, nullptr, nullptr, __FILE__, __LINE__,
                            [check]() -> ::testing::Test* {
                              return new TableTest(check);  // NOLINT: gtest's
                            });
  };
  add("EveryCaseHasItsTest", every_case_has_its_test);
  add("NotationTellsValuesApart", notation_tells_values_apart);
  add("ChangingAnyValueFailsItsTest", changing_any_value_fails_its_test);
  add("IsTheCommittedOne", table_is_the_committed_one);
}

}  // namespace
}  // namespace cohort::conformance

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);  // takes its own flags out
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--write-table") {
      std::fprintf(stderr,
                   "%s: what is %s? There are --write-table, which writes docs/conformance.md, "
                   "and the flags of GoogleTest\n",
                   argv[0], argv[i]);
      return 2;
    }
    cohort::conformance::g_write_table = true;
  }
  cohort::conformance::register_trials();
  cohort::conformance::register_table_tests();
  return RUN_ALL_TESTS();
}
