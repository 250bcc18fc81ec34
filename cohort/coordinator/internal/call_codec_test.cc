// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/internal/call_codec.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "cohort/base/sanitizers.h"
#include "cohort/base/strings.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::coordinator {
namespace {

using cohort::testing::expect_error;

struct Nested {
  Tensor loss = {};
  std::vector<std::string> names = {};
  std::optional<double> rate = {};
};
struct Everything {
  bool yes = false;
  int8_t small = 0;
  uint64_t large = 0;
  float number = 0;
  std::string text = {};
  std::map<std::string, std::vector<Tensor>> table = {};
  std::array<int, 3> fixed = {};
  std::tuple<int, std::pair<double, std::string>> pair = {};
  Nested nested = {};
  Gradient gradient = {};
};

template <class T>
EncodedValues encoded(const T& value) {
  ValueWriter out;
  write_value(out, value);
  return std::move(out).finish();
}

template <class T>
T decoded(const EncodedValues& values) {
  ValueReader in(values);
  T out = read_value<T>(in);
  in.end();
  return out;
}

Everything an_example() {
  return {.yes = true,
          .small = -7,
          .large = std::numeric_limits<uint64_t>::max(),
          .number = 1.5F,
          .text = std::string("a\0b", 3),
          .table = {{"x", {tensor({1, 2}), arange(1000, kInt64)}}, {"", {}}},
          .fixed = {1, 2, 3},
          .pair = {4, {0.25, "c"}},
          .nested = {.loss = scalar(3), .names = {"p", "q"}, .rate = 0.1},
          .gradient = IndexedSlices{tensor({5}), arange(1), Shape{9}}};
}

TEST(CallCodec, ValuesComeBack) {
  const auto back = decoded<Everything>(encoded(an_example()));
  EXPECT_TRUE(back.yes);
  EXPECT_EQ(back.small, -7);
  EXPECT_EQ(back.large, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(back.number, 1.5F);
  EXPECT_EQ(back.text, std::string("a\0b", 3));
  ASSERT_EQ(back.table.size(), 2U);
  EXPECT_TRUE(back.table.at("x")[0].equal(tensor({1, 2})));
  EXPECT_TRUE(back.table.at("x")[1].equal(arange(1000)));
  EXPECT_EQ(back.fixed[2], 3);
  EXPECT_EQ(std::get<1>(back.pair).second, "c");
  EXPECT_EQ(back.nested.loss.item<double>(), 3);
  EXPECT_EQ(back.nested.names.back(), "q");
  EXPECT_EQ(back.nested.rate, 0.1);
  EXPECT_EQ(back.gradient.slices().dense_shape, Shape{9});
}

TEST(CallCodec, TensorsOfEveryKindComeBack) {
  for (const DType dtype :
       {kBool, kUint8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{2, 3}, Shape{40, 50}}) {
      const Tensor sent = ones(shape, dtype);
      const auto back = decoded<Tensor>(encoded(sent));
      EXPECT_EQ(back.scalar_type(), dtype);
      EXPECT_TRUE(back.equal(sent)) << dtype_name(dtype) << bracketed(shape);
    }
  }
  EXPECT_TRUE(decoded<Tensor>(encoded(arange(600).reshape({20, 30}).t()))
                  .equal(arange(600).reshape({20, 30}).t()));
  EXPECT_FALSE(decoded<Tensor>(encoded(Tensor())).defined());
}

TEST(CallCodec, LargeTensorsAreReadAsTheyWere) {
  Tensor changed = zeros({1000});
  const EncodedValues sent = encoded(changed);
  changed.fill_(1);
  EXPECT_EQ(sent.blobs.size(), 1U) << "their bytes are not in the text";
  EXPECT_TRUE(decoded<Tensor>(sent).equal(zeros({1000})));
}

TEST(CallCodec, WhatDoesNotTravelIsRefused) {
  ValueWriter out;
  expect_error<InvalidArgument>({"[schedule]", "dense"}, [&] {
    out.tensor(zeros({3, 3}).to_sparse());
  });
}

TEST(CallCodec, AnotherTypeIsDataLoss) {
  expect_error<DataLoss>({"expected"}, [] { decoded<float>(encoded(1.5)); });
  expect_error<DataLoss>({"expected"}, [] { decoded<std::string>(encoded(1)); });
  expect_error<DataLoss>({"the end"}, [] {
    EncodedValues values = encoded(1);
    values.head += 'x';
    decoded<int>(values);
  });
  expect_error<DataLoss>({"length"}, [] {
    decoded<std::array<int, 3>>(encoded(std::vector<int>{1, 2}));
  });
}

// Whatever the bytes are, they are values or DataLoss.
TEST(CallCodec, DamagedBytesAreAnError) {
  const EncodedValues good = encoded(an_example());
  for (std::size_t size = 0; size < good.head.size(); ++size) {
    EncodedValues cut = good;
    cut.head.resize(size);
    EXPECT_THROW(decoded<Everything>(cut), DataLoss) << size;
  }
  constexpr int kTrials = COHORT_UNDER_SANITIZER != 0 ? 2000 : 20000;
  std::mt19937 random(1);  // NOLINT: the same bytes each time
  for (int trial = 0; trial < kTrials; ++trial) {
    EncodedValues damaged = good;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      damaged.head[random() % damaged.head.size()] = static_cast<char>(random());
    }
    try {
      decoded<Everything>(damaged);
    } catch (const DataLoss&) {  // as promised
    }
  }
}

TEST(CallCodec, ImpossibleShapesTakeNoMemory) {
  for (const std::vector<uint64_t>& sizes : {std::vector<uint64_t>{uint64_t{1} << 60},
                                             {uint64_t{1} << 33, uint64_t{1} << 33},
                                             {0, uint64_t{1} << 39, uint64_t{1} << 39},
                                             {~uint64_t{0}},
                                             {1 << 20}}) {
    ValueWriter out;
    out.kind(ValueKind::kTensor);
    out.byte(1);
    out.byte(static_cast<uint8_t>(kFloat32));
    out.byte(static_cast<uint8_t>(sizes.size()));
    for (const uint64_t size : sizes) out.number(size);
    const EncodedValues values = std::move(out).finish();
    EXPECT_THROW(decoded<Tensor>(values), DataLoss);
  }
}

TEST(CallCodec, ErrorsKeepTheirClass) {
  const auto travelled = [](const std::exception_ptr& error) {
    ValueWriter out;
    write_error(out, error);
    const EncodedValues values = std::move(out).finish();
    ValueReader in(values);
    std::rethrow_exception(read_error(in, "on worker 1"));
  };
  expect_error<InvalidArgument>({"too few", "on worker 1"}, [&] {
    travelled(std::make_exception_ptr(InvalidArgument("too few")));
  });
  expect_error(ErrorCode::kOutOfRange, {"no more data"}, [&] {
    travelled(std::make_exception_ptr(Error(ErrorCode::kOutOfRange, "no more data")));
  });
  expect_error(ErrorCode::kUnknown, {"of the program's own"}, [&] {
    travelled(std::make_exception_ptr(std::logic_error("of the program's own")));
  });
  try {
    travelled(std::make_exception_ptr(Unavailable("gone", "127.0.0.1:1")));
  } catch (const Unavailable& e) {
    EXPECT_EQ(e.peer(), "127.0.0.1:1");
  }
}

}  // namespace
}  // namespace cohort::internal::coordinator
