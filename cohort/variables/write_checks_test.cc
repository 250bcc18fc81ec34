// SPDX-License-Identifier: Apache-2.0
//
// Writes that would store another number than the one given, or go to another strategy's variable.
#include <gtest/gtest.h>

#include <limits>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort::internal::variables {
namespace {

using testing::expect_error;

struct WriteChecks : ReplicasTest {};

TEST_F(WriteChecks, AnIntegerVariableHasWholeNumbersOnly) {
  const Variable v = make(zeros({2}, kInt32), {.name = "steps"});
  v.assign(3);
  for (const double bad : {2.7, 1e10, -3e9, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    expect_error<InvalidArgument>({"[variable.assign]", "int32"}, [&] { v.assign(bad); });
    expect_error<InvalidArgument>({"[variable.assign_add]", "int32"}, [&] { v.assign_add(bad); });
  }
  expect_error<InvalidArgument>({"int32", "\"steps\"", "float32"}, [&] { v.assign(scalar(2.7)); });
  EXPECT_THROW(v.assign_sub(tensor({2.5, 3.5})), InvalidArgument);
  EXPECT_THROW(v.assign(PerReplica<Tensor>({scalar(1.5), scalar(1)})), InvalidArgument);
  EXPECT_EQ(to_vector<int32_t>(v.value()), (std::vector<int32_t>{3, 3}));
  v.assign(scalar(4, kInt64));
  v.assign_add(1);
  EXPECT_EQ(to_vector<int32_t>(v.value()), (std::vector<int32_t>{5, 5}));
}

TEST_F(WriteChecks, SoHaveBoolsAndSmallTypes) {
  const Variable flag = make(zeros({}, kBool));
  EXPECT_THROW(flag.assign(2), InvalidArgument);
  EXPECT_THROW(flag.assign(scalar(1, kInt32)), InvalidArgument);
  flag.assign(1);
  EXPECT_TRUE(flag.value().item<bool>());
  EXPECT_THROW(flag.assign_add(1), InvalidArgument);  // LibTorch adds bools to bools,
  EXPECT_THROW(flag.assign_sub(1), InvalidArgument);  // but does not subtract them
  const Variable byte = make(zeros({}, kUint8));
  EXPECT_THROW(byte.assign(256), InvalidArgument);
  EXPECT_THROW(byte.assign(-1), InvalidArgument);
  byte.assign(255);
  EXPECT_EQ(byte.value().item<uint8_t>(), 255);
  const Variable real = make(zeros({}));
  EXPECT_THROW(real.assign(1e39), InvalidArgument);
  real.assign(std::numeric_limits<double>::infinity());
}

TEST_F(WriteChecks, IntegersOfAnotherTypeHaveToFit) {
  const auto integers = [](std::vector<int64_t> values, DType dtype) {
    return from_vector(values, {static_cast<int64_t>(values.size())}).to(dtype);
  };
  const int64_t most = std::numeric_limits<int32_t>::max();
  const Variable v = make(zeros({2}, kInt32));
  v.assign(integers({-most - 1, most}, kInt64));
  EXPECT_EQ(to_vector<int64_t>(v.value()), (std::vector<int64_t>{-most - 1, most}));
  expect_error<InvalidArgument>({"[variable.assign]", "int32 can hold", "got 2147483648"}, [&] {
    v.assign(integers({5, most + 1}, kInt64));
  });
  expect_error<InvalidArgument>({"[variable.assign_add]", "int32 can hold", "got -2147483649"},
                                [&] {
                                  v.assign_add(integers({-most - 2, 5}, kInt64));
                                });
  EXPECT_THROW(v.assign_sub(integers({0, most + 1}, kInt64)), InvalidArgument);
  EXPECT_EQ(to_vector<int64_t>(v.value()), (std::vector<int64_t>{-most - 1, most}));
  v.assign(integers({65535, 0}, DType::UInt16));
  EXPECT_EQ(to_vector<int32_t>(v.value()), (std::vector<int32_t>{65535, 0}));
  expect_error<InvalidArgument>({"[variable]", "int32 can hold", "got 2147483648"}, [&] {
    Variable(integers({5, most + 1}, kInt64), {.dtype = kInt32});
  });
  EXPECT_EQ(Variable(integers({most}, kInt64), {.dtype = kInt32}).dtype(), kInt32);
  const Variable byte = make(zeros({2}, kUint8));
  for (const DType from : {DType::Short, kInt32, kInt64, DType::UInt16}) {
    byte.assign(integers({255, 0}, from));
    EXPECT_EQ(to_vector<int32_t>(byte.value()), (std::vector<int32_t>{255, 0})) << from;
    expect_error<InvalidArgument>({"uint8 can hold", "got 256"}, [&] {
      byte.assign(integers({256, 1}, from));
    });
  }
  expect_error<InvalidArgument>({"uint8 can hold", "got -1"}, [&] {
    byte.assign(integers({1, -1}, DType::Char));
  });
  // As uint64 these are 2^63 + 5 and 2^64 - 1.
  for (const DType to : {kInt64, kInt32, kUint8}) {
    const Variable small = make(zeros({2}, to));
    for (const int64_t bits : {std::numeric_limits<int64_t>::min() + 5, int64_t{-1}}) {
      expect_error<InvalidArgument>({"can hold", "9223372036854775808 or more"}, [&] {
        small.assign(integers({1, bits}, DType::UInt64));
      });
    }
    small.assign(integers({1, 200 % 128}, DType::UInt64));
    EXPECT_EQ(to_vector<int64_t>(small.value().to(kInt64)), (std::vector<int64_t>{1, 72}));
  }
  byte.assign(integers({7, 127}, DType::Char));
  EXPECT_EQ(to_vector<int32_t>(byte.value()), (std::vector<int32_t>{7, 127}));
  make(zeros({0}, kUint8)).assign(empty({0}, kInt64));
}

// As bits of int64, which read alike.
int64_t bits_of(const Variable& v) { return v.value().view(kInt64).item<int64_t>(); }

TEST_F(WriteChecks, AUint64VariableHasItsUpperHalf) {
  const Variable v = make(1e19, {.dtype = DType::UInt64});
  EXPECT_EQ(bits_of(v), static_cast<int64_t>(10000000000000000000u));
  for (const double number : {0.0, 0x1p63, 0x1p64 - 2048}) {
    v.assign(number);
    EXPECT_EQ(bits_of(v), static_cast<int64_t>(static_cast<uint64_t>(number)));
  }
  for (const double bad : {0x1p64, -1.0, 0.5, std::numeric_limits<double>::quiet_NaN()}) {
    expect_error<InvalidArgument>({"[variable.assign] expected a number that uint64 can hold, got"},
                                  [&] { v.assign(bad); });
  }
  EXPECT_EQ(bits_of(v), -2048);
  v.assign_add(2047);
  EXPECT_EQ(bits_of(v), -1);
  v.assign_sub(scalar(7, kInt32));
  EXPECT_EQ(bits_of(v), -8);
  v.assign(v.value().clone());
  EXPECT_EQ(bits_of(v), -8);
}

TEST_F(WriteChecks, UnsignedVariablesAreAddedTo) {
  for (const DType dtype : {DType::UInt16, DType::UInt32, DType::UInt64, kUint8}) {
    const Variable v = make(zeros({2}, dtype));
    v.assign_add(full({2}, 200, kInt64));
    v.assign_sub(3);
    EXPECT_EQ(to_vector<int64_t>(v.value().to(kInt64)), (std::vector<int64_t>{197, 197})) << dtype;
    EXPECT_EQ(v.dtype(), dtype);
  }
}

// Of tensors, as in tf.cast: to find it would cost a pass over what is written. Plain numbers are
// refused.
TEST_F(WriteChecks, BeyondTheRangeOfAFloatingTypeTensorsAreInfinite) {
  const Variable v = make(zeros({2}, kFloat16));
  const auto value = [&] { return to_vector<float>(v.value().to(kFloat32)); };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  v.assign(tensor({1e6, -65504}));
  EXPECT_EQ(value(), (std::vector<float>{kInfinity, -65504}));
  v.assign(scalar(-1e6));
  EXPECT_EQ(value(), (std::vector<float>{-kInfinity, -kInfinity}));
  expect_error<InvalidArgument>({"[variable.assign] expected a number that float16 can hold, got"},
                                [&] { v.assign(1e6); });
  EXPECT_EQ(value(), (std::vector<float>{-kInfinity, -kInfinity}));
  v.assign(scalar(70000, kInt64));
  EXPECT_EQ(value(), (std::vector<float>{kInfinity, kInfinity}));
  const Variable single = make(zeros({}));
  single.assign(scalar(1e300, kFloat64));
  EXPECT_EQ(single.value().item<float>(), kInfinity);
}

TEST_F(WriteChecks, InitialNumbersAreWhatWasGiven) {
  EXPECT_THROW(make(2.7, {.dtype = kInt32}), InvalidArgument);
  EXPECT_THROW(make(tensor({2.7}), {.dtype = kInt32}), InvalidArgument);
  EXPECT_EQ(make(16777217, {.dtype = kInt64}).value().item<int64_t>(), 16777217);
  EXPECT_EQ(make(0.1, {.dtype = kFloat64}).value().item<double>(), 0.1);
  EXPECT_EQ(make(0.1).dtype(), kFloat32);
}

// A number travels as a double: one that would become another is refused, but where it is rounded
// anyway.
TEST_F(WriteChecks, LargeIntegersAreExactOrRefused) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  const Variable v = make(int64_t{1} << 62, {.dtype = kInt64});
  EXPECT_EQ(v.value().item<int64_t>(), int64_t{1} << 62);
  v.assign(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(v.value().item<int64_t>(), std::numeric_limits<int64_t>::min());
  v.assign(kOdd - 1);
  expect_error<InvalidArgument>(
      {"[variable.assign] expected an integer that a double holds, for a variable of int64, ",
       "beyond 2^53; give it as a tensor"},
      [&] { v.assign(kOdd); });
  expect_error<InvalidArgument>({"[variable.assign_sub] "}, [&] { v.assign_sub(-kOdd); });
  EXPECT_THROW(v.assign_add(static_cast<uint64_t>(kOdd)), InvalidArgument);
  EXPECT_THROW(make(kOdd, {.dtype = kInt64}), InvalidArgument);
  EXPECT_EQ(v.value().item<int64_t>(), kOdd - 1);
  v.assign(from_vector<int64_t>({kOdd}, {}));
  EXPECT_EQ(v.value().item<int64_t>(), kOdd);
  const Variable real = make(kOdd, {.dtype = kFloat64});
  EXPECT_EQ(real.value().item<double>(), static_cast<double>(kOdd));
  real.assign(kOdd + 2);
  EXPECT_EQ(real.value().item<double>(), static_cast<double>(kOdd + 2));
}

TEST_F(WriteChecks, AnotherStrategysScopeIsRefused) {
  const Variable v = make(ones({2}));
  runtime::ReplicaGroup others({.replicas = 2});
  const auto other = std::make_shared<LocalVariables>(
      LocalVariablesOptions{.devices = devices(2), .group = &others});
  const Variable plain(1.0);
  {
    const VariableCreatorScope scope(other);
    expect_error<FailedPrecondition>({"strategies cannot be mixed"}, [&] { v.assign(9); });
    EXPECT_THROW(v.assign_add(ones({2})), FailedPrecondition);
    EXPECT_THROW(v.assign(PerReplica<Tensor>({ones({2}), ones({2})})), FailedPrecondition);
    EXPECT_THROW(v.scatter_add({ones({1}), tensor({0}, kInt64), {2}}), FailedPrecondition);
    plain.assign(2);
  }
  EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{1, 1}));
  EXPECT_EQ(plain.value().item<float>(), 2);
  v.assign(9);
  const VariableCreatorScope scope(creator_);
  v.assign(8);
  EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{8, 8}));
}

}  // namespace
}  // namespace cohort::internal::variables
