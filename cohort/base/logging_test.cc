// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/logging.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cohort
