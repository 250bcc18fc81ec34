// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "cohort/base/check.h"
#include "cohort/base/errno_code.h"
#include "cohort/base/function_ref.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

TEST(Error, ChildrenCarryTheirCode) {
  EXPECT_EQ(InvalidArgument("x").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Unavailable("x", "worker:1").peer(), "worker:1");
  EXPECT_STREQ(error_code_name(ErrorCode::kDataLoss), "DATA_LOSS");
  EXPECT_EQ(static_cast<int>(ErrorCode::kUnavailable), 14);
}

TEST(Error, FilesHaveOneTableOfCodes) {
  EXPECT_EQ(internal::base::code_of_errno(ENOENT), ErrorCode::kNotFound);
  EXPECT_EQ(internal::base::code_of_errno(ESTALE), ErrorCode::kNotFound);
  EXPECT_EQ(internal::base::code_of_errno(EEXIST), ErrorCode::kAlreadyExists);
  EXPECT_EQ(internal::base::code_of_errno(EPERM), ErrorCode::kPermissionDenied);
  EXPECT_EQ(internal::base::code_of_errno(ENOSPC), ErrorCode::kResourceExhausted);
  EXPECT_EQ(internal::base::code_of_errno(EMFILE), ErrorCode::kResourceExhausted);
  EXPECT_EQ(internal::base::code_of_errno(EIO), ErrorCode::kUnknown);
}

TEST(Check, BuildsTheTextOnlyOnFailure) {
  int built = 0;
  auto text = [&] {
    ++built;
    return "got";
  };
  COHORT_CHECK_ARG(true, text());
  EXPECT_EQ(built, 0);
  EXPECT_EQ(testing::error_text<InvalidArgument>(
                [&] { COHORT_CHECK_ARG(1 + 1 == 3, "[op] expected ", 3, ", ", text(), " ", 2); }),
            "[op] expected 3, got 2");
  EXPECT_THROW(COHORT_CHECK_STATE(false, "x"), FailedPrecondition);
  EXPECT_THROW(COHORT_CHECK(false, "x"), Internal);
}

TEST(Strings, BracketsAndJoins) {
  EXPECT_EQ(bracketed(std::vector<int>{2, 3}), "[2, 3]");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, ", "), "a, b");
}

TEST(FunctionRef, CallsWhatItRefersTo) {
  int sum = 0;
  auto add = [&](int x) { sum += x; };
  internal::base::FunctionRef<void(int)> ref = add;
  ref(3);
  ref(4);
  EXPECT_EQ(sum, 7);
  const auto constant = [] { return 8; };
  EXPECT_EQ(internal::base::FunctionRef<int()>(constant)(), 8);
}

int twice(int x) { return 2 * x; }

TEST(FunctionRef, TakesPlainFunctions) {
  internal::base::FunctionRef<int(int)> ref = twice;
  EXPECT_EQ(ref(21), 42);
}

}  // namespace
}  // namespace cohort
