// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/demangle.h"

#include <gtest/gtest.h>

#include <typeinfo>

#include "cohort/base/error.h"

namespace cohort::internal::base {
namespace {

TEST(Demangle, TellsTypesAndFunctionsAsTheyAreWritten) {
  EXPECT_EQ(demangled(typeid(cohort::DataLoss).name()), "cohort::DataLoss");
  EXPECT_EQ(demangled("_Z3foov"), "foo()");
}

TEST(Demangle, LeavesWhatIsNoSuchName) {
  EXPECT_EQ(demangled("?"), "?");
  EXPECT_EQ(demangled(""), "");
}

}  // namespace
}  // namespace cohort::internal::base
