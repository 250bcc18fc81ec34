// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/utils.h"

#include <gtest/gtest.h>

#include <limits>

#include "cohort/base/error.h"

namespace cohort::keras {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Tensor ints(const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())});
}

// The numbers are TensorFlow's.
TEST(OneHot, AsTensorFlow) {
  EXPECT_EQ(to_vector<float>(one_hot(ints({0, 2, -1, 5}), 3)),
            (Floats{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}));
  const Tensor first =
      one_hot(ints({0, 2, -1, 1}), 3, {.on_value = 5, .off_value = -1, .axis = 0, .dtype = kInt32});
  EXPECT_EQ(first.scalar_type(), kInt32);
  EXPECT_EQ(shape_of(first), (Shape{3, 4}));
  EXPECT_EQ(to_vector<int32_t>(first),
            (std::vector<int32_t>{5, -1, -1, -1, -1, -1, -1, 5, -1, 5, -1, -1}));
  const Tensor middle = one_hot(ints({0, 2, 1, -1}).view({2, 2}), 3, {.axis = 1});
  EXPECT_EQ(shape_of(middle), (Shape{2, 3, 2}));
  EXPECT_EQ(to_vector<float>(middle), (Floats{1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(to_vector<float>(one_hot(scalar(2, kUint8), 4)), (Floats{0, 0, 1, 0}));
  EXPECT_EQ(shape_of(one_hot(ints({0}), 0)), (Shape{1, 0}));
}

TEST(OneHot, Refuses) {
  EXPECT_THROW(one_hot(tensor({1.0}), 2), InvalidArgument);
  EXPECT_THROW(one_hot(ints({1}), -1), InvalidArgument);
  EXPECT_THROW(one_hot(ints({1}), 2, {.axis = 2}), InvalidArgument);
  EXPECT_THROW(one_hot(ints({1}), 2, {.axis = -3}), InvalidArgument);
  EXPECT_THROW(one_hot(Tensor(), 2), InvalidArgument);
}

TEST(ToCategorical, AsKeras) {
  const Tensor four = to_categorical(ints({0, 1, 2, 3}));
  EXPECT_EQ(shape_of(four), (Shape{4, 4}));
  EXPECT_EQ(to_vector<float>(four), (Floats{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(to_vector<float>(to_categorical(ints({0, 2}).view({2, 1}))),
            (Floats{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(shape_of(to_categorical(ints({0, 1, 2, 0}).view({2, 2}))), (Shape{2, 2, 3}));
  EXPECT_EQ(to_vector<float>(to_categorical(ints({-1, 0, 2}))),
            (Floats{0, 0, 1, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(to_vector<float>(to_categorical(tensor({1.7, 0.2}))), (Floats{0, 1, 1, 0}));
  EXPECT_EQ(to_vector<float>(to_categorical(scalar(2, kInt64))), (Floats{0, 0, 1}));
  EXPECT_EQ(to_vector<float>(to_categorical(ints({0, 1}), 4)), (Floats{1, 0, 0, 0, 0, 1, 0, 0}));
}

TEST(ToCategorical, Refuses) {
  EXPECT_THROW(to_categorical(ints({3}), 3), InvalidArgument);
  EXPECT_THROW(to_categorical(ints({-4}), 3), InvalidArgument);
  EXPECT_THROW(to_categorical(ints({-1, -2})), InvalidArgument);
  EXPECT_THROW(to_categorical(ints({})), InvalidArgument);
}

void expect_near(const Tensor& got, const Doubles& expected) {
  const Doubles values = to_vector<double>(got);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-12) << i;
}

TEST(Normalize, AsKeras) {
  const Tensor x = from_vector<double>({3, 4, 0, 0, 1, -2}, {3, 2});
  expect_near(normalize(x), {0.6, 0.8, 0, 0, 0.4472135954999579, -0.8944271909999159});
  expect_near(normalize(x, -1, 1), {3.0 / 7, 4.0 / 7, 0, 0, 1.0 / 3, -2.0 / 3});
  expect_near(normalize(x, -1, std::numeric_limits<double>::infinity()), {0.75, 1, 0, 0, 0.5, -1});
  expect_near(normalize(x, 0), {0.9486832980505138, 0.8944271909999159, 0, 0, 0.31622776601683794,
                                -0.4472135954999579});
  EXPECT_EQ(normalize(ints({3, 4})).scalar_type(), kFloat32);
  EXPECT_THROW(normalize(x, 2), InvalidArgument);
  EXPECT_THROW(normalize(x, -1, 0), InvalidArgument);
  EXPECT_THROW(normalize(scalar(1)), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
