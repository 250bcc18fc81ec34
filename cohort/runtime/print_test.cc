// SPDX-License-Identifier: Apache-2.0
//
// What std::cout << shows of tensors, shapes and devices. The numbers' layout is NumPy's.
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "cohort/runtime/device.h"
#include "cohort/runtime/tensor.h"

namespace {

// Outside of cohort: a program's own namespace finds the operators, too.
template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

namespace cohort {
namespace {

TEST(PrintTensor, SaysValuesShapeAndType) {
  EXPECT_EQ(text_of(tensor({1, 2.5, -3})), "Tensor([ 1.   2.5 -3. ], shape=[3], dtype=float32)");
  EXPECT_EQ(text_of(scalar(3.5)), "Tensor(3.5, shape=[], dtype=float32)");
  EXPECT_EQ(text_of(scalar(7, kInt64)), "Tensor(7, shape=[], dtype=int64)");
  EXPECT_EQ(text_of(tensor({1, 0}, kBool)), "Tensor([ True False], shape=[2], dtype=bool)");
  EXPECT_EQ(text_of(tensor({1, -20}, kInt32)), "Tensor([  1 -20], shape=[2], dtype=int32)");
  EXPECT_EQ(text_of(zeros({0, 3})), "Tensor([], shape=[0, 3], dtype=float32)");
  EXPECT_EQ(text_of(Tensor()), "Tensor(undefined)");
}

TEST(PrintTensor, WritesRowsBelowEachOther) {
  EXPECT_EQ(text_of(from_vector<float>({1, 2, 3, 4}, {2, 2})),
            "Tensor(\n[[1. 2.]\n [3. 4.]], shape=[2, 2], dtype=float32)");
  EXPECT_EQ(internal::runtime::values_text(arange(8).reshape({2, 2, 2})),
            "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
}

// What NumPy 2 prints for the same numbers.
TEST(PrintTensor, ChoosesDigitsAsNumPyDoes) {
  EXPECT_EQ(internal::runtime::values_text(tensor({0.1, 0.25, 1.0 / 3})),
            "[0.1        0.25       0.33333334]");
  EXPECT_EQ(internal::runtime::values_text(tensor({1e-10, 1.5})), "[1.0e-10 1.5e+00]");
  EXPECT_EQ(internal::runtime::values_text(tensor({123456789, 1}, kFloat64)),
            "[1.23456789e+08 1.00000000e+00]");
  EXPECT_EQ(internal::runtime::values_text(tensor({0.1, 2}, kFloat16)), "[0.1 2. ]");
  EXPECT_EQ(internal::runtime::values_text(tensor({0.1, 2}, kBFloat16)), "[0.1 2. ]");
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(
      internal::runtime::values_text(tensor({1, -kInf, std::numeric_limits<double>::quiet_NaN()})),
      "[  1. -inf  nan]");
}

TEST(PrintTensor, IsShortForLargeOnesAndBreaksLines) {
  EXPECT_EQ(internal::runtime::values_text(arange(1001)), "[   0    1    2 ...  998  999 1000]");
  EXPECT_EQ(internal::runtime::values_text(arange(2000).reshape({2, 1000})),
            "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]]");
  EXPECT_EQ(internal::runtime::values_text(arange(30)),
            "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
            " 24 25 26 27 28 29]");
  EXPECT_LT(text_of(zeros({4000, 4000})).size(), 400U);
}

TEST(PrintTensor, DoesNotFailForTensorsWithGradients) {
  Tensor x = tensor({1, 2});
  x.set_requires_grad(true);
  EXPECT_EQ(text_of(x * 2.0), "Tensor([2. 4.], shape=[2], dtype=float32)");
}

TEST(PrintShape, ShowsUnknownDimensions) {
  std::ostringstream out;
  out << Shape{2, kUnknownDim};
  EXPECT_EQ(out.str(), "[2, ?]");
}

TEST(PrintDevice, IsShortOnThisMachine) {
  EXPECT_EQ(text_of(Device("cpu:1")), "CPU:1");
  EXPECT_EQ(text_of(Device("/job:worker/task:1/device:CPU:0")),
            "/job:worker/replica:0/task:1/device:CPU:0");
}

}  // namespace
}  // namespace cohort
