// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/logging.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "cohort/base/log_tag.h"

namespace cohort {
namespace {

TEST(Logging, WritesTensorFlowsLineFormat) {
  ::testing::internal::CaptureStderr();
  COHORT_LOG(kError, "lost ", 3, " peers");
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(::testing::internal::RE::FullMatch(
      line,
      ::testing::internal::RE(
          "^....-..-.. ..:..:..\\.......: E cohort/base/logging_test.cc:.*] lost 3 peers\n$")))
      << line;
}

void say_as_worker() {
  internal::base::set_log_tag("worker-0");
  COHORT_LOG(kError, "lost \"a\"\n", 3, " peers");
}

TEST(Logging, NamesTheTask) {
  ::testing::internal::CaptureStderr();
  say_as_worker();
  internal::base::set_log_tag("");
  COHORT_LOG(kError, "alone");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("] [worker-0] lost \"a\""), std::string::npos) << text;
  EXPECT_NE(text.find("] alone"), std::string::npos) << text;
}

// In a process of its own: variables are read with the first line.
TEST(LoggingVariablesDeathTest, AreReadAtTheFirstLine) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto exit_after_json = [] {
    ::setenv("COHORT_LOG_JSON", "1", 1);
    say_as_worker();
    ::_exit(3);
  };
  EXPECT_EXIT(exit_after_json(), ::testing::ExitedWithCode(3),
              "\"level\": \"ERROR\", \"task\": \"worker-0\", \"thread\": [0-9]+, \"file\": "
              "\"cohort/base/logging_test.cc\", \"line\": [0-9]+, \"message\": "
              "\"lost ..a.*u000a3 peers\"}");
  const auto exit_after_thread = [] {
    ::setenv("TF_CPP_LOG_THREAD_ID", "1", 1);
    say_as_worker();
    ::_exit(3);
  };
  EXPECT_EXIT(exit_after_thread(), ::testing::ExitedWithCode(3),
              ": E [0-9]+ cohort/base/logging_test.cc");
}

}  // namespace
}  // namespace cohort
