// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "cohort/base/error.h"
#include "cohort/testing/child.h"

namespace cohort::internal::base {
namespace {

using testing::status_of_child;

// How often `place` is passed in a process that was told so, before one throws; -1: none of five.
int passes_before_a_throw(const char* variable, const char* place) {
  return status_of_child([&] {
    ::setenv("COHORT_FAILPOINTS", variable, 1);
    ::setenv("RANK", "1", 1);
    for (int pass = 0; pass < 5; ++pass) {
      try {
        obey_failpoints_variable(place);
      } catch (const Internal&) {
        return pass;
      }
    }
    return 5;
  });
}

TEST(Failpoint, ActsOnceAtTheTimeThatIsNamed) {
  EXPECT_EQ(passes_before_a_throw("a=throw", "a"), 0);
  EXPECT_EQ(passes_before_a_throw("b=throw,a=throw#3", "a"), 2);
  EXPECT_EQ(passes_before_a_throw("a=throw", "b"), 5);
}

TEST(Failpoint, ActsInTheProcessOfTheRank) {
  EXPECT_EQ(passes_before_a_throw("a=throw#2@1", "a"), 1);
  EXPECT_EQ(passes_before_a_throw("a=throw#2@0", "a"), 5);
}

TEST(Failpoint, Kills) { EXPECT_EQ(passes_before_a_throw("a=kill", "a"), -SIGKILL); }

TEST(Failpoint, RefusesWhatItCannotRead) {
  for (const char* wrong : {"a", "a=", "a=explode", "a=kill#x", "a=kill@", "a=kill#-1"}) {
    const auto read = [&] {
      ::setenv("COHORT_FAILPOINTS", wrong, 1);
      try {
        obey_failpoints_variable("a");
      } catch (const InvalidArgument&) {
        return 7;
      }
      return 0;
    };
    EXPECT_EQ(status_of_child(read), 7) << wrong;
  }
}

}  // namespace
}  // namespace cohort::internal::base
