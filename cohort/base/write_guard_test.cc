// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/write_guard.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/testing/child.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::base {
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

TEST(WriteGuards, AProcessThatWasGivenUpWritesNothingUntilItHasAPlaceAgain) {
  {
    const WriteGuard guard([] {});
    forbid_writes("worker 1 is too late");
  }
  testing::expect_error<FailedPrecondition>({"worker 1 is too late"}, [] { check_may_write(); });
  allow_writes();
  check_may_write();
}

// A check that waits, such as for a store that does not answer, does not keep other threads from
// fork, nor its child from writing, which is no part of the job.
TEST(WriteGuards, AChildIsNotGuarded) {
  std::promise<void> begun;
  std::promise<void> go_on;
  const WriteGuard guard([&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  std::jthread writer([] { check_may_write(); });
  begun.get_future().wait();
  EXPECT_EQ(testing::status_of_child([] {
              check_may_write();
              const WriteGuard of_child([] { throw FailedPrecondition("of the child"); });
              try {
                check_may_write();
              } catch (const FailedPrecondition&) {
                return 0;
              }
              return 1;
            }),
            0);
  go_on.set_value();
}

}  // namespace
}  // namespace cohort::internal::base
