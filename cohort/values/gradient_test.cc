// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/gradient.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/values/indexed_slices.h"

namespace cohort {
namespace {

IndexedSlices three_rows() {
  return {.values = from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2}),
          .indices = from_vector<int64_t>({2, 0, 2}, {3}),
          .dense_shape = {4, 2}};
}

TEST(IndexedSlices, ToDenseAddsRepeatedRows) {
  const Tensor dense = three_rows().to_dense();
  EXPECT_EQ(shape_of(dense), (Shape{4, 2}));
  EXPECT_EQ(to_vector<float>(dense), (std::vector<float>{3, 4, 0, 0, 6, 8, 0, 0}));
}

TEST(IndexedSlices, ToDenseTakesVectorsInt32AndNoRows) {
  const IndexedSlices flat{.values = tensor({1, 2}, kFloat64),
                           .indices = from_vector<int32_t>({1, 1}, {2}),
                           .dense_shape = {3}};
  EXPECT_EQ(flat.to_dense().scalar_type(), kFloat64);
  EXPECT_EQ(to_vector<double>(flat.to_dense()), (std::vector<double>{0, 3, 0}));
  const IndexedSlices none{
      .values = zeros({0, 2}), .indices = zeros({0}, kInt64), .dense_shape = {2, 2}};
  EXPECT_EQ(to_vector<float>(none.to_dense()), (std::vector<float>{0, 0, 0, 0}));
}

TEST(IndexedSlices, ToDenseRefusesWhatDoesNotFit) {
  IndexedSlices wrong = three_rows();
  wrong.dense_shape = {4, 3};
  EXPECT_THROW(wrong.to_dense(), InvalidArgument);
  wrong = three_rows();
  wrong.dense_shape = {2, 2};
  EXPECT_EQ(testing::error_text<InvalidArgument>([&] { wrong.to_dense(); }),
            "[indexed_slices.to_dense] expected indices in [0, 2), got 2");
  wrong = three_rows();
  wrong.indices = from_vector<int64_t>({2, -1, 2}, {3});
  EXPECT_THROW(wrong.to_dense(), InvalidArgument);
  wrong.indices = tensor({0, 1, 2});
  EXPECT_THROW(wrong.to_dense(), InvalidArgument);
  EXPECT_THROW(IndexedSlices{}.to_dense(), InvalidArgument);
}

TEST(Gradient, IsNoneDenseOrSparse) {
  const Gradient none;
  EXPECT_FALSE(none.has_value());
  EXPECT_THROW(none.dense(), FailedPrecondition);
  EXPECT_THROW(none.slices(), FailedPrecondition);
  EXPECT_THROW(none.as_tensor(), FailedPrecondition);
  EXPECT_FALSE(Gradient(Tensor()).has_value());

  const Tensor x = tensor({1, 2});
  const Gradient dense = x;
  EXPECT_TRUE(dense.has_value());
  EXPECT_FALSE(dense.is_sparse());
  EXPECT_TRUE(dense.dense().is_same(x));
  EXPECT_TRUE(dense.as_tensor().is_same(x));
  EXPECT_THROW(dense.slices(), FailedPrecondition);

  const Gradient sparse = three_rows();
  EXPECT_TRUE(sparse.is_sparse());
  EXPECT_THROW(sparse.dense(), FailedPrecondition);
  EXPECT_EQ(sparse.slices().dense_shape, (Shape{4, 2}));
  EXPECT_EQ(to_vector<float>(sparse.as_tensor())[4], 6);
}

TEST(Gradient, ReadsAsTensor) {
  const Gradient dense = tensor({1, 2});
  EXPECT_EQ(to_vector<float>(dense * 2), (std::vector<float>{2, 4}));
  const Tensor plain = dense;
  EXPECT_TRUE(plain.is_same(dense.dense()));
  const Gradient sparse = three_rows();
  EXPECT_EQ(to_vector<float>(-sparse)[0], -3);
}

TEST(Gradient, IsSameComparesObjects) {
  const Tensor x = tensor({1});
  EXPECT_TRUE(Gradient(x).is_same(x));
  EXPECT_FALSE(Gradient(x).is_same(tensor({1})));
  EXPECT_TRUE(Gradient().is_same(Gradient()));
  EXPECT_FALSE(Gradient().is_same(x));
  const IndexedSlices rows = three_rows();
  EXPECT_TRUE(Gradient(rows).is_same(rows));
  EXPECT_FALSE(Gradient(rows).is_same(three_rows()));
}

}  // namespace
}  // namespace cohort
