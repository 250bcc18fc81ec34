// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/indexed_slices.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "cohort/testing/expect_error.h"
#include "cohort/values/internal/add_rows.h"

namespace cohort {
namespace {

// Repeated rows, so many that it shows when a short dtype is rounded.
IndexedSlices some_rows(DType dtype, DType index_dtype) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const Tensor values = (at::randn({6, 2, 3}, generator) * 8).to(dtype);
  const Tensor indices = at::tensor({4, 0, 4, 2, 4, 0}).to(index_dtype);
  return {.values = values, .indices = indices, .dense_shape = {5, 2, 3}};
}

TEST(IndexedSlicesToDense, HasTheBitsOfIndexAddByLongIndices) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUint8, kBool,
                            at::kComplexFloat}) {
    for (const DType index_dtype : {kInt32, kInt64}) {
      SCOPED_TRACE(dtype_name(dtype));
      const IndexedSlices slices = some_rows(dtype, index_dtype);
      const Tensor expected = at::zeros(slices.dense_shape, slices.values.options())
                                  .index_add_(0, slices.indices.to(kInt64), slices.values);
      EXPECT_TRUE(slices.to_dense().equal(expected));
    }
  }
}

TEST(IndexedSlicesToDense, ReadsValuesThatDoNotLieInOneRow) {
  IndexedSlices slices = some_rows(kFloat32, kInt64);
  const Tensor expected = slices.to_dense();
  slices.values = slices.values.transpose(1, 2).contiguous().transpose(1, 2);
  ASSERT_FALSE(slices.values.is_contiguous());
  EXPECT_TRUE(slices.to_dense().equal(expected));
}

TEST(IndexedSlicesToDense, CarriesAGradientToItsValues) {
  IndexedSlices slices = some_rows(kFloat32, kInt64);
  slices.values.requires_grad_();
  (slices.to_dense() * 3).sum().backward();
  EXPECT_TRUE(slices.values.grad().eq(3).all().item<bool>());
}

TEST(IndexedSlicesToDense, IsZeroWithoutRows) {
  const IndexedSlices slices{
      .values = at::zeros({0, 2}), .indices = at::zeros({0}, kInt64), .dense_shape = {3, 2}};
  EXPECT_TRUE(slices.to_dense().equal(at::zeros({3, 2})));
}

TEST(WriteDense, OverwritesAndCountsAsAWrite) {
  const IndexedSlices slices = some_rows(kFloat32, kInt32);
  Tensor out = at::ones({5, 2, 3});
  const auto version = out._version();
  internal::values::write_dense(slices, out);
  EXPECT_TRUE(out.equal(slices.to_dense()));
  EXPECT_GT(out._version(), version);
}

TEST(WriteDense, RefusesRowsThatTheTableDoesNotHave) {
  IndexedSlices slices = some_rows(kFloat32, kInt64);
  slices.indices = slices.indices + 1;
  Tensor out = at::ones({5, 2, 3});
  testing::expect_error<InvalidArgument>({"indices in [0, 5)", "got 5"},
                                         [&] { internal::values::write_dense(slices, out); });
  EXPECT_TRUE(out.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace cohort
