// SPDX-License-Identifier: Apache-2.0
#include "cohort/reductions/local_reduce.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort {
namespace {

TEST(ReduceOp, ParsesNamesInAnyCase) {
  EXPECT_EQ(parse_reduce_op("sum"), ReduceOp::kSum);
  EXPECT_EQ(parse_reduce_op("MEAN"), ReduceOp::kMean);
  EXPECT_EQ(parse_reduce_op("Max"), ReduceOp::kMax);
  EXPECT_THROW(parse_reduce_op("avg"), InvalidArgument);
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kProduct}) {
    EXPECT_EQ(parse_reduce_op(reduce_op_name(op)), op);
  }
}

TEST(LocalReduce, CombinesEveryOp) {
  const std::vector<Tensor> values = {tensor({1, 8}), tensor({3, 2}), tensor({2, 5})};
  const auto reduce = [&](ReduceOp op) {
    return to_vector<float>(internal::reductions::reduce_in_order(op, values));
  };
  EXPECT_EQ(reduce(ReduceOp::kSum), (std::vector<float>{6, 15}));
  EXPECT_EQ(reduce(ReduceOp::kMean), (std::vector<float>{2, 5}));
  EXPECT_EQ(reduce(ReduceOp::kMin), (std::vector<float>{1, 2}));
  EXPECT_EQ(reduce(ReduceOp::kMax), (std::vector<float>{3, 8}));
  EXPECT_EQ(reduce(ReduceOp::kProduct), (std::vector<float>{6, 80}));
}

TEST(LocalReduce, RefusesWhatDoesNotMatch) {
  const std::vector<Tensor> shapes = {tensor({1, 2}), tensor({1})};
  EXPECT_THROW(internal::reductions::reduce_in_order(ReduceOp::kSum, shapes), InvalidArgument);
  const std::vector<Tensor> integers = {tensor({1}, kInt64), tensor({2}, kInt64)};
  EXPECT_THROW(internal::reductions::reduce_in_order(ReduceOp::kMean, integers), InvalidArgument);
  EXPECT_EQ(to_vector<int64_t>(internal::reductions::reduce_in_order(ReduceOp::kSum, integers)),
            (std::vector<int64_t>{3}));
}

TEST(LocalReduce, RefusesMixedAndUnorderedDtypes) {
  const std::vector<Tensor> mixed = {tensor({1}), tensor({2}, kFloat64)};
  EXPECT_THROW(internal::reductions::reduce_in_order(ReduceOp::kSum, mixed), InvalidArgument);
  const std::vector<Tensor> flags = {ones({2}, kBool), zeros({2}, kBool)};
  EXPECT_THROW(internal::reductions::reduce_in_order(ReduceOp::kSum, flags), InvalidArgument);
  EXPECT_EQ(to_vector<bool>(internal::reductions::reduce_in_order(ReduceOp::kMax, flags)),
            (std::vector<bool>{true, true}));
}

TEST(LocalReduce, MakesCopiesInOnePass) {
  const std::vector<Tensor> values = {tensor({1, 8}), tensor({3, 2})};
  const std::vector<Tensor> copies =
      internal::reductions::reduce_to_copies(ReduceOp::kSum, values, 3);
  ASSERT_EQ(copies.size(), 3U);
  for (const Tensor& copy : copies) EXPECT_EQ(to_vector<float>(copy), (std::vector<float>{4, 10}));
  EXPECT_NE(copies[0].data_ptr(), copies[1].data_ptr());
  EXPECT_EQ(
      internal::reductions::reduce_to_copies(ReduceOp::kMax, values, 2)[1].data_ptr<float>()[1], 8);
}

// Where another kind of device brings its own kernels.
TEST(LocalReduce, GoesThroughTheReducerOfTheValuesMemory) {
  struct Counting final : internal::reductions::RangeReducer {
    Counting() : before(internal::reductions::exchange_range_reducer(c10::kCPU, this)) {}
    ~Counting() override { internal::reductions::exchange_range_reducer(c10::kCPU, before); }
    void reduce(const internal::reductions::RangeReduction& range) override {
      ++calls;
      before->reduce(range);
    }
    int calls = 0;
    internal::reductions::RangeReducer* const before;
  };
  const std::vector<Tensor> floats = {tensor({1, 8}), tensor({3, 2})};
  const std::vector<Tensor> integers = {tensor({1}, kInt64), tensor({2}, kInt64)};
  Counting counting;
  EXPECT_EQ(to_vector<float>(internal::reductions::reduce_in_order(ReduceOp::kSum, floats)),
            (std::vector<float>{4, 10}));
  EXPECT_EQ(counting.calls, 1);
  EXPECT_EQ(to_vector<int64_t>(internal::reductions::reduce_in_order(ReduceOp::kMax, integers)),
            (std::vector<int64_t>{2}));
  EXPECT_EQ(counting.calls, 2);
  internal::reductions::reduce_to_copies(ReduceOp::kMean, floats, 2);
  EXPECT_EQ(counting.calls, 3);
}

TEST(LocalReduce, RefusesMemoryThatNobodyReduces) {
  const std::vector<Tensor> values = {ones({2}).to(at::kMeta), ones({2}).to(at::kMeta)};
  EXPECT_THROW(internal::reductions::reduce_in_order(ReduceOp::kSum, values), InvalidArgument);
}

TEST(LocalReduce, RecordsGradients) {
  const Tensor a = tensor({1, 2}).requires_grad_(), b = tensor({3, 4}).requires_grad_();
  const std::vector<Tensor> values = {a, b};
  internal::reductions::reduce_in_order(ReduceOp::kMean, values).sum().backward();
  EXPECT_EQ(to_vector<float>(b.grad()), (std::vector<float>{0.5, 0.5}));
}

}  // namespace
}  // namespace cohort
