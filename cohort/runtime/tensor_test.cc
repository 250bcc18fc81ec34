// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/tensor.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using Floats = std::vector<float>;

// A class that reads as a tensor, as variables do.
struct Handle {
  Tensor inner;
  Tensor as_tensor() const { return inner; }
};

TEST(Tensor, ConstructorsMakeShapeAndType) {
  EXPECT_EQ(to_vector<float>(tensor({1, 2.5})), (Floats{1, 2.5}));
  EXPECT_EQ(tensor({1, 2}, kInt64).scalar_type(), kInt64);
  EXPECT_EQ(shape_of(tensor({})), (Shape{0}));
  EXPECT_EQ(scalar(3).dim(), 0);
  EXPECT_EQ(scalar(3).item<float>(), 3);
  EXPECT_EQ(to_vector<int>(zeros({2, 2}, kInt32)), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(ones({2, 3}).scalar_type(), kFloat32);
  EXPECT_EQ(ones({2, 3}).sum().item<float>(), 6);
  EXPECT_EQ(to_vector<double>(full({2}, 0.1, kFloat64)), (std::vector<double>{0.1, 0.1}));
  EXPECT_EQ(shape_of(empty({4, 0})), (Shape{4, 0}));
  EXPECT_EQ(to_vector<int64_t>(arange(3)), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(arange(3, kFloat32).scalar_type(), kFloat32);
}

TEST(Tensor, ConcatJoinsAlongAnAxis) {
  const std::vector<Tensor> parts{ones({1, 2}), zeros({1, 2})};
  EXPECT_EQ(to_vector<float>(concat(parts)), (Floats{1, 1, 0, 0}));
  EXPECT_EQ(to_vector<float>(concat(parts, 1)), (Floats{1, 1, 0, 0}));
  EXPECT_EQ(shape_of(concat(parts, 1)), (Shape{1, 4}));
  EXPECT_THROW(concat({}), InvalidArgument);
}

TEST(Tensor, VectorsRoundTrip) {
  const std::vector<int32_t> numbers{1, 2, 3, 4, 5, 6};
  const Tensor t = from_vector(numbers, {2, 3});
  EXPECT_EQ(t.scalar_type(), kInt32);
  EXPECT_EQ(to_vector<int32_t>(t), numbers);
  EXPECT_EQ(to_vector<double>(t), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  // Row-major, whatever the layout in memory.
  EXPECT_EQ(to_vector<int32_t>(t.t()), (std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(to_vector<uint8_t>(from_vector<uint8_t>({200, 255}, {2})),
            (std::vector<uint8_t>{200, 255}));
  EXPECT_EQ(to_vector<float>(scalar(2)), (Floats{2}));
  EXPECT_TRUE(to_vector<float>(from_vector(Floats{}, {0, 3})).empty());
}

TEST(Tensor, VectorsOfBoolRoundTrip) {
  const std::vector<bool> bits{true, false, true};
  const Tensor t = from_vector(bits, {3});
  EXPECT_EQ(t.scalar_type(), kBool);
  EXPECT_EQ(to_vector<bool>(t), bits);
  EXPECT_EQ(to_vector<bool>(tensor({0, 2})), (std::vector<bool>{false, true}));
}

TEST(Tensor, FromVectorCopies) {
  Floats data{1, 2};
  const Tensor t = from_vector(data, {2});
  data[0] = 9;
  EXPECT_EQ(to_vector<float>(t), (Floats{1, 2}));
}

TEST(Tensor, FromVectorRefusesAnotherNumberOfValues) {
  EXPECT_EQ(testing::error_text<InvalidArgument>([] {
              from_vector(Floats{1, 2, 3}, {2, 2});
            }),
            "[from_vector] expected 4 values for shape [2, 2], got 3");
  EXPECT_THROW(from_vector(Floats{}, {}), InvalidArgument);
  EXPECT_THROW(from_vector(Floats{1, 2, 3, 4}, {-2, -2}), InvalidArgument);
}

TEST(Tensor, ToVectorReadsWhatRecordsGradients) {
  const Tensor t = tensor({1, 2}).requires_grad_();
  EXPECT_EQ(to_vector<float>(t * 2), (Floats{2, 4}));
  EXPECT_THROW(to_vector<float>(Tensor()), InvalidArgument);
}

TEST(Tensor, OperatorsTakeTensorsHandlesAndNumbers) {
  const Tensor a = tensor({1, 2, 4});
  const Handle b{tensor({4, 2, 1})};
  EXPECT_EQ(to_vector<float>(a + b), (Floats{5, 4, 5}));
  EXPECT_EQ(to_vector<float>(b - a), (Floats{3, 0, -3}));
  EXPECT_EQ(to_vector<float>(b * b), (Floats{16, 4, 1}));
  EXPECT_EQ(to_vector<float>(a / b), (Floats{0.25, 1, 4}));
  EXPECT_EQ(to_vector<float>(a + 1), (Floats{2, 3, 5}));
  EXPECT_EQ(to_vector<float>(1 + b), (Floats{5, 3, 2}));
  EXPECT_EQ(to_vector<float>(a - 0.5), (Floats{0.5, 1.5, 3.5}));
  EXPECT_EQ(to_vector<float>(10 - a), (Floats{9, 8, 6}));
  EXPECT_EQ(to_vector<float>(2 * a), (Floats{2, 4, 8}));
  EXPECT_EQ(to_vector<float>(a / 2), (Floats{0.5, 1, 2}));
  EXPECT_EQ(to_vector<float>(-b), (Floats{-4, -2, -1}));
}

TEST(Tensor, DividingANumberRoundsOnce) {
  EXPECT_EQ(to_vector<float>(8 / tensor({1, 2, 4})), (Floats{8, 4, 2}));
  EXPECT_EQ(to_vector<float>(49 / tensor({49, 5})), (Floats{1, 9.8F}));
  EXPECT_EQ(to_vector<double>(1.0 / tensor({3}, kInt64)), (std::vector<double>{1.0F / 3.0F}));
  EXPECT_EQ((1.5 / tensor({3}, kFloat16)).scalar_type(), kFloat16);
  EXPECT_EQ((1 / tensor({3}, kFloat64)).scalar_type(), kFloat64);
}

// As Python's %: of the divisor's sign.
TEST(Tensor, ModuloTakesTensorsHandlesAndNumbers) {
  const Tensor a = tensor({1, -2, 3});
  const Handle b{tensor({2, 3, -2})};
  EXPECT_EQ(to_vector<float>(a % b), (Floats{1, 1, -1}));
  EXPECT_EQ(to_vector<float>(a % 2), (Floats{1, 0, 1}));
  EXPECT_EQ(to_vector<float>(4 % b), (Floats{0, 1, 0}));
  EXPECT_EQ(to_vector<int64_t>(arange(4) % 2), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ((5 % tensor({3}, kFloat16)).scalar_type(), kFloat16);
}

TEST(Tensor, ComparisonsGiveBools) {
  const Tensor a = tensor({1, 2, 3});
  const Tensor b = tensor({2, 2, 2});
  const auto bits = [](const Tensor& t) {
    EXPECT_EQ(t.scalar_type(), kBool);
    return to_vector<int>(t);
  };
  using Ints = std::vector<int>;
  EXPECT_EQ(bits(a < b), (Ints{1, 0, 0}));
  EXPECT_EQ(bits(a > b), (Ints{0, 0, 1}));
  EXPECT_EQ(bits(a <= b), (Ints{1, 1, 0}));
  EXPECT_EQ(bits(a >= b), (Ints{0, 1, 1}));
  EXPECT_EQ(bits(a < 2), (Ints{1, 0, 0}));
  EXPECT_EQ(bits(2 < a), (Ints{0, 0, 1}));
  EXPECT_EQ(bits(2 > a), (Ints{1, 0, 0}));
  EXPECT_EQ(bits(2 <= a), (Ints{0, 1, 1}));
  EXPECT_EQ(bits(2 >= a), (Ints{1, 1, 0}));
  EXPECT_EQ(bits(a == b), (Ints{0, 1, 0}));
  EXPECT_EQ(bits(a != b), (Ints{1, 0, 1}));
  EXPECT_EQ(bits(a == Handle{b}), (Ints{0, 1, 0}));
  EXPECT_EQ(bits(Handle{b} != a), (Ints{1, 0, 1}));
  EXPECT_EQ(bits(a == 3), (Ints{0, 0, 1}));
  EXPECT_EQ(bits(3 == a), (Ints{0, 0, 1}));
  EXPECT_EQ(bits(a != 3), (Ints{1, 1, 0}));
  EXPECT_EQ(bits(3 != a), (Ints{1, 1, 0}));
}

TEST(Tensor, TypesHaveKerasNames) {
  EXPECT_STREQ(dtype_name(kFloat32), "float32");
  EXPECT_STREQ(dtype_name(kBFloat16), "bfloat16");
  EXPECT_STREQ(dtype_name(kUint8), "uint8");
  EXPECT_STREQ(dtype_name(kBool), "bool");
  EXPECT_STREQ(dtype_name(DType::Char), "int8");
  EXPECT_STREQ(dtype_name(DType::UInt64), "uint64");
}

}  // namespace
}  // namespace cohort
