// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/process_mark.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/base/error.h"
#include "cohort/testing/child.h"

namespace cohort::internal::base {
namespace {

using testing::status_of_child;

TEST(ProcessMark, IsOursUntilTheProcessForks) {
  const ProcessMark mark;
  EXPECT_TRUE(mark.is_ours());
  EXPECT_EQ(status_of_child([&] { return mark.is_ours() ? 1 : 0; }), 0);
  EXPECT_EQ(status_of_child([] { return ProcessMark().is_ours() ? 0 : 1; }), 0);
  EXPECT_EQ(status_of_child([] {
              const ProcessMark of_child;
              return status_of_child([&] { return of_child.is_ours() ? 1 : 0; });
            }),
            0);
  EXPECT_TRUE(mark.is_ours()) << "the parent keeps what it made";
}

TEST(ProcessMark, TellsTheChildWhatToDo) {
  const ProcessMark mark;
  EXPECT_NO_THROW(mark.check("strategy.run", "a strategy"));
  EXPECT_EQ(status_of_child([&] {
              try {
                mark.check("strategy.run", "a strategy");
              } catch (const FailedPrecondition& e) {
                const std::string text = e.what();
                return text.starts_with("[strategy.run] expected a strategy") &&
                               text.find("made before fork") != std::string::npos &&
                               text.ends_with("make it in the child")
                           ? 0
                           : 1;
              }
              return 2;
            }),
            0);
}

}  // namespace
}  // namespace cohort::internal::base
