// SPDX-License-Identifier: Apache-2.0
//
// Sparse rows on a GPU beside the CPU's: the same order of additions, so the same bits.
#include <span>

#include "cohort/base/strings.h"
#include "cohort/values/internal/add_rows.h"
#include "cohort/variables/internal/scatter.h"
#include "cohort/variables/row_sum.h"
#include "tests/gpu/kernels_test.h"

namespace cohort {
namespace {

using internal::values::add_rows;
using internal::variables::RowSum;
using internal::variables::Scatter;
using internal::variables::scatter_rows;
using internal::variables::sum_rows;

constexpr int64_t kRows = 50;

// With many of row 7, more than a kernel has under way at once.
Tensor some_indices(DType dtype = kInt64) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < 200; ++i) at.push_back(i % 3 == 0 ? 7 : (i * 37) % kRows);
  return from_vector<int64_t>(at, {200}).to(dtype);
}

Tensor numbers(int64_t rows, int64_t width, DType dtype, unsigned seed) {
  Tensor x = normal_numbers(rows * width, kFloat64, seed).reshape({rows, width}).mul(4);
  if (at::isIntegralType(dtype, true)) x = x.round().add(20).abs();
  return dtype == kBool ? x.gt(20) : x.to(dtype);
}

Tensor flat(const Tensor& x) { return x.reshape({-1}); }

using RowKernels = GpuKernels;

TEST_F(RowKernels, RowsAddUpInTheirOrder) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, DType::Char,
                            DType::ComplexFloat, kBool}) {
    for (const int64_t width : {1, 3, 64, 300}) {
      for (const DType index : {kInt32, kInt64}) {
        const Tensor at = some_indices(index), rows = numbers(200, width, dtype, 1);
        Tensor cpu = numbers(kRows, width, dtype, 2), gpu = on_gpu(cpu);
        add_rows(gpu, on_gpu(at), on_gpu(rows));
        add_rows(cpu, at, rows);
        expect_same(flat(gpu), flat(cpu), 0, str_cat("rows of ", width, " ", dtype_name(dtype)));
      }
    }
  }
}

TEST_F(RowKernels, WhatIsNoRowIsPassedOver) {
  const Tensor rows = numbers(3, 5, kFloat32, 1);
  Tensor gpu = on_gpu(numbers(kRows, 5, kFloat32, 2)), cpu = numbers(kRows, 5, kFloat32, 2);
  add_rows(gpu, on_gpu(from_vector<int64_t>({-1, kRows, 3}, {3})), on_gpu(rows));
  add_rows(cpu, from_vector<int64_t>({3}, {1}), rows.narrow(0, 2, 1));
  expect_same(flat(gpu), flat(cpu), 0, "indices -1, 50 and 3 of 50 rows");
}

TEST_F(RowKernels, SlicesBecomeDense) {
  const IndexedSlices cpu{numbers(200, 8, kFloat32, 1), some_indices(), {kRows, 8}};
  const IndexedSlices gpu{on_gpu(cpu.values), on_gpu(cpu.indices), {kRows, 8}};
  expect_same(flat(gpu.to_dense()), flat(cpu.to_dense()), 0, "to_dense");
  Tensor place = on_gpu(ones({kRows, 8}));
  internal::values::write_dense(gpu, place);
  expect_same(flat(place), flat(cpu.to_dense()), 0, "write_dense");
}

TEST_F(RowKernels, ScattersInOrder) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, DType::Byte}) {
    for (const Scatter kind : {Scatter::kAdd, Scatter::kSub, Scatter::kMul, Scatter::kDiv,
                               Scatter::kMin, Scatter::kMax, Scatter::kUpdate}) {
      const Tensor at = some_indices();
      const Tensor rows = numbers(200, 5, dtype, 1).abs().add(1);
      Tensor cpu = numbers(kRows, 5, dtype, 2), gpu = on_gpu(cpu);
      scatter_rows(gpu, kind, {on_gpu(rows), on_gpu(at), {}});
      scatter_rows(cpu, kind, {rows, at, {}});
      expect_same(flat(gpu), flat(cpu), 0,
                  str_cat(internal::variables::operation_name(kind), dtype_name(dtype)));
    }
  }
}

void expect_same_sum(const RowSum& gpu, const RowSum& cpu, const std::string& what) {
  EXPECT_EQ(gpu.rows, cpu.rows) << what;
  EXPECT_TRUE(gpu.values.is_cuda()) << what;
  expect_same(flat(gpu.values), flat(cpu.values), 0, what);
  expect_same(flat(gpu.to_dense({kRows, 6})), flat(cpu.to_dense({kRows, 6})), 0, what + ", dense");
}

TEST_F(RowKernels, SumsHaveEachRowOnce) {
  const IndexedSlices a{numbers(200, 6, kFloat32, 1), some_indices(), {kRows, 6}};
  const IndexedSlices b{
      numbers(4, 6, kFloat32, 3), from_vector<int64_t>({49, 2, 7, 2}, {4}), {kRows, 6}};
  const auto there = [&](const IndexedSlices& x) {
    return sum_rows({on_gpu(x.values), on_gpu(x.indices), x.dense_shape}, kFloat32);
  };
  const RowSum gpu[] = {there(a), there(b)};
  const RowSum cpu[] = {sum_rows(a, kFloat32), sum_rows(b, kFloat32)};
  expect_same_sum(gpu[0], cpu[0], "many rows");
  expect_same_sum(gpu[1], cpu[1], "few rows");
  const RowSum* const on_gpu_both[] = {&gpu[0], &gpu[1]};
  const RowSum* const on_cpu_both[] = {&cpu[0], &cpu[1]};
  expect_same_sum(sum_rows(on_gpu_both, 0, kRows), sum_rows(on_cpu_both, 0, kRows), "both");
  expect_same_sum(sum_rows(on_gpu_both, 3, 40), sum_rows(on_cpu_both, 3, 40), "rows 3 to 40");
}

}  // namespace
}  // namespace cohort
