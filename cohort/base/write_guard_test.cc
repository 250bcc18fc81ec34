// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/write_guard.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::internal {
namespace {

TEST(WriteGuards, AnyOfThemRefuses) {
  check_may_write();
  bool late = false;
  const WriteGuard first([] {});
  {
    const WriteGuard second([&] {
      if (late) throw FailedPrecondition("too late");
    });
    check_may_write();
    late = true;
    EXPECT_THROW(check_may_write(), FailedPrecondition);
  }
  check_may_write();
}

}  // namespace
}  // namespace cohort::internal
