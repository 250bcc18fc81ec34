// SPDX-License-Identifier: Apache-2.0
//
// Reductions on a GPU beside those of the CPU.
#include <ATen/ops/complex.h>
#include <ATen/ops/zeros_like.h>

#include "cohort/base/strings.h"
#include "cohort/reductions/local_reduce.h"
#include "tests/gpu/kernels_test.h"

namespace cohort {
namespace {

using internal::reductions::RangeReduction;
using internal::reductions::reduce_range;

constexpr int64_t kSize = 5003;

Tensor numbers_of(DType dtype, unsigned seed) {
  if (dtype == kBool) return normal_numbers(kSize, kFloat64, seed).gt(0);
  if (at::isComplexType(dtype)) {
    return at::complex(normal_numbers(kSize, kFloat64, seed),
                       normal_numbers(kSize, kFloat64, seed + 50))
        .to(dtype);
  }
  Tensor x = normal_numbers(kSize, kFloat64, seed).mul(9);
  if (at::isIntegralType(dtype, false)) x = x.round();
  if (dtype == DType::Byte || at::isBarebonesUnsignedType(dtype)) x = x.abs();
  return x.to(dtype);
}

struct Reduction {
  DType dtype;
  ReduceOp op;
};

std::vector<Reduction> every_reduction() {
  std::vector<Reduction> all;
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                               ReduceOp::kProduct};
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, DType::Char, DType::Byte,
                            DType::Short, kInt32, kInt64, kBool, DType::ComplexFloat,
                            DType::ComplexDouble, DType::UInt16, DType::UInt32, DType::UInt64}) {
    for (const ReduceOp op : kOps) {
      const bool mean = op == ReduceOp::kMean,
                 ordered = op == ReduceOp::kMin || op == ReduceOp::kMax;
      if (mean && at::isIntegralType(dtype, true)) continue;
      if (dtype == kBool && !ordered) continue;
      if (at::isComplexType(dtype) && ordered) continue;
      // Of these, LibTorch's CPU functions have sums alone.
      if (at::isBarebonesUnsignedType(dtype) && op != ReduceOp::kSum) continue;
      all.push_back({dtype, op});
    }
  }
  return all;
}

// Reduces [begin, end) of `values` into values[0] and one more: both.
std::vector<Tensor> reduce(const Reduction& kind, c10::DeviceType memory,
                           std::vector<Tensor> values, int64_t begin, int64_t end) {
  Tensor other = at::zeros_like(values[0]);
  std::vector<const void*> sources;
  for (const Tensor& v : values) sources.push_back(v.const_data_ptr());
  void* const outs[] = {values[0].mutable_data_ptr(), other.mutable_data_ptr()};
  reduce_range({.op = kind.op,
                .dtype = kind.dtype,
                .sources = sources,
                .outs = outs,
                .begin = begin,
                .end = end,
                .divisor = static_cast<double>(values.size()),
                .memory = memory});
  return {values[0], other};
}

class ReduceKernelsTest : public GpuKernels, public ::testing::WithParamInterface<Reduction> {};

TEST_P(ReduceKernelsTest, HasTheCpusNumbers) {
  const Reduction kind = GetParam();
  for (const int count : {1, 2, 3}) {
    for (const int64_t shift : {0, 1}) {
      std::vector<Tensor> cpu, gpu;
      for (int s = 0; s < count; ++s) {
        cpu.push_back(numbers_of(kind.dtype, static_cast<unsigned>(s) + 1));
        gpu.push_back(on_gpu_shifted(cpu.back(), s == 0 ? shift : 0));
      }
      const double tolerance = at::isComplexType(kind.dtype) ? 1e-6 : 0;
      const std::string what = str_cat(reduce_op_name(kind.op), " of ", count, " ",
                                       dtype_name(kind.dtype), " off by ", shift);
      const std::vector<Tensor> got = reduce(kind, c10::kCUDA, gpu, 3, kSize - 2);
      const std::vector<Tensor> expected = reduce(kind, c10::kCPU, cpu, 3, kSize - 2);
      expect_same(got[0], expected[0], tolerance, what + ", in place");
      expect_same(got[1], expected[1], tolerance, what);
    }
  }
}

TEST_P(ReduceKernelsTest, KeepsNan) {
  const Reduction kind = GetParam();
  if (!at::isFloatingType(kind.dtype)) return;
  std::vector<Tensor> cpu = {numbers_of(kind.dtype, 1), numbers_of(kind.dtype, 2)};
  cpu[0].select(0, 7).fill_(std::nan(""));
  cpu[1].select(0, 8).fill_(std::nan(""));
  const std::vector<Tensor> gpu = {on_gpu(cpu[0]), on_gpu(cpu[1])};
  const Tensor got = reduce(kind, c10::kCUDA, gpu, 0, kSize)[0].narrow(0, 0, 16);
  expect_same(got, reduce(kind, c10::kCPU, cpu, 0, kSize)[0].narrow(0, 0, 16), 0,
              reduce_op_name(kind.op));
  const std::vector<double> numbers = to_vector<double>(got.cpu().to(kFloat64));
  EXPECT_TRUE(std::isnan(numbers[7]) && std::isnan(numbers[8])) << numbers[7] << ", " << numbers[8];
}

std::string reduction_name(const ::testing::TestParamInfo<Reduction>& info) {
  return std::string(dtype_name(info.param.dtype)) + "_" + reduce_op_name(info.param.op);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReduceKernelsTest, ::testing::ValuesIn(every_reduction()),
                         reduction_name);

}  // namespace
}  // namespace cohort
