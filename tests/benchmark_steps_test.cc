// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/steps.h"

#include <gtest/gtest.h>

namespace cohort::bench {
namespace {

TEST(StepsFor, FillsTheTime) {
  EXPECT_EQ(steps_for([](std::int64_t) { return 1000.0; }, 0.02), 20);
  EXPECT_EQ(steps_for([](std::int64_t) { return 1e6; }, 0.02), 1);
}

// A machine on which others compute: a pull of 4 MB was timed alone in all samples for it.
TEST(StepsFor, BelievesNoSingleSlowStep) {
  for (int slow = 0; slow < 12; ++slow) {
    int calls = 0;
    const auto time = [&](std::int64_t) { return calls++ == slow ? 30'000.0 : 1000.0; };
    EXPECT_EQ(steps_for(time, 0.02), 20) << "call " << slow;
  }
}

// What steps need once, such as threads to wake, is part of their time in a loop, too.
TEST(StepsFor, GrowsWhereLoopsAreQuicker) {
  const auto time = [](std::int64_t steps) { return 100.0 + 900.0 / static_cast<double>(steps); };
  EXPECT_NEAR(static_cast<double>(steps_for(time, 0.02)), 190, 10);
}

}  // namespace
}  // namespace cohort::bench
