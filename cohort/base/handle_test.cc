// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/handle.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::base {
namespace {

using testing::expect_error;

/// A handle as the classes above are, with an operation and one that helps it.
class OddHandle {
 public:
  int value() const { return *held(value_, "OddHandle"); }
  int map() const { return do_map(); }
  int tagged() const { return *held(value_, "OddHandle", "[odd.tag]"); }
  int operator()() const { return *held(value_, "OddHandle"); }
  template <class T>
  T as() const {
    return static_cast<T>(*held(value_, "OddHandle"));
  }

  std::shared_ptr<int> value_;

 private:
  int do_map() const { return *held(value_, "OddHandle"); }
};

TEST(Handle, NamesClassAndOperation) {
  const OddHandle empty;
  expect_error<FailedPrecondition>(
      {"[odd_handle.value] expected an OddHandle, got an empty handle"}, [&] { empty.value(); });
  expect_error<FailedPrecondition>({"[odd_handle.map] expected"}, [&] { empty.map(); });
  expect_error<FailedPrecondition>({"[odd.tag] expected an OddHandle"}, [&] { empty.tagged(); });
  expect_error<FailedPrecondition>({"[odd_handle.as] expected"}, [&] { empty.as<float>(); });
  expect_error<FailedPrecondition>({"[odd_handle] expected an OddHandle"}, [&] { empty(); });
}

TEST(Handle, GivesWhatIsThere) {
  const OddHandle handle{std::make_shared<int>(3)};
  EXPECT_EQ(handle.value(), 3);
  const std::function<int()> none;
  expect_error<FailedPrecondition>({"expected a Function"}, [&] { held(none, "Function")(); });
}

}  // namespace
}  // namespace cohort::internal::base
