// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that a GPU makes beside the CPU's.
#include <ATen/ops/empty.h>

#include <span>

#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/runtime/device_random.h"
#include "tests/gpu/kernels_test.h"

namespace cohort {
namespace {

using internal::runtime::RandomFiller;
using internal::runtime::RandomStream;

template <class T>
std::span<T> span_of(Tensor& x) {
  return {x.mutable_data_ptr<T>(), static_cast<std::size_t>(x.numel())};
}

class RandomKernels : public GpuKernels {
 protected:
  RandomFiller& filler() const { return *internal::runtime::random_filler(place_.type()); }
  Tensor empty_on_gpu(int64_t n, DType dtype) const {
    return at::empty({n}, at::TensorOptions().dtype(dtype).device(place_));
  }
  // A step above 32 bits, a replica, a seed: all of the counter and the key.
  const RandomStream stream_{42, 7, (uint64_t{5} << 32) + 3, 11};
  const std::vector<int64_t> sizes_ = {1, 15, 16, 17, 63, 64, 65, 1000, 100003};
};

TEST_F(RandomKernels, MasksHaveTheCpusBits) {
  for (const int64_t n : sizes_) {
    for (const double rate : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      Tensor single = empty({n}), wide = empty({n}, kFloat64);
      internal::runtime::fill_keep_mask(stream_, rate, span_of<float>(single));
      internal::runtime::fill_keep_mask(stream_, rate, span_of<double>(wide));
      for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
        Tensor mask = empty_on_gpu(n, dtype);
        filler().keep_mask(stream_, rate, mask);
        expect_same(mask, dtype == kFloat64 ? wide : single.to(dtype), 0,
                    str_cat(n, " of ", dtype_name(dtype), " at rate ", rate));
      }
    }
  }
  Tensor integers = empty_on_gpu(4, kInt64);
  EXPECT_THROW(filler().keep_mask(stream_, 0.5, integers), InvalidArgument);
  Tensor numbers = empty_on_gpu(4, kFloat32);
  EXPECT_THROW(filler().keep_mask(stream_, 1.5, numbers), InvalidArgument);
}

template <class T>
void expect_uniform(RandomFiller& filler, const RandomStream& stream, Tensor gpu) {
  Tensor cpu = empty({gpu.numel()}, gpu.scalar_type());
  internal::runtime::fill_uniform(stream, T(-0.3), T(1.7), span_of<T>(cpu));
  filler.uniform(stream, -0.3, 1.7, gpu);
  expect_same(gpu, cpu, 0, str_cat("uniform ", dtype_name(gpu.scalar_type()), " ", gpu.numel()));
}

template <class T>
void expect_normal(RandomFiller& filler, const RandomStream& stream, Tensor gpu) {
  Tensor cpu = empty({gpu.numel()}, gpu.scalar_type());
  internal::runtime::fill_normal(stream, T(0.5), T(2), span_of<T>(cpu));
  filler.normal(stream, 0.5, 2, gpu);
  expect_same(gpu, cpu, gpu.scalar_type() == kFloat32 ? 1e-6 : 1e-14,
              str_cat("normal ", dtype_name(gpu.scalar_type()), " ", gpu.numel()));
}

TEST_F(RandomKernels, NumbersAreTheCpus) {
  for (const int64_t n : sizes_) {
    expect_uniform<float>(filler(), stream_, empty_on_gpu(n, kFloat32));
    expect_uniform<double>(filler(), stream_, empty_on_gpu(n, kFloat64));
    expect_normal<float>(filler(), stream_, empty_on_gpu(n, kFloat32));
    expect_normal<double>(filler(), stream_, empty_on_gpu(n, kFloat64));
  }
}

TEST_F(RandomKernels, LayersDrawWhereTheirInputsAre) {
  keras::internal::Draws on_cpu(5), on_device(5);
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const Tensor x = zeros({33, 7}, dtype);
    const Tensor mask = on_device.keep_mask({33, 1}, 0.3, on_gpu(x));
    EXPECT_EQ(mask.device(), place_);
    EXPECT_EQ(mask.scalar_type(), dtype);
    expect_same(mask.reshape({-1}), on_cpu.keep_mask({33, 1}, 0.3, x).reshape({-1}), 0,
                str_cat("mask of ", dtype_name(dtype)));
    const double tolerance = dtype == kBFloat16 ? 1e-2 : (dtype == kFloat16 ? 1e-3 : 1e-6);
    expect_same(on_device.normal(0, 1, on_gpu(x)).reshape({-1}),
                on_cpu.normal(0, 1, x).reshape({-1}), tolerance,
                str_cat("noise of ", dtype_name(dtype)));
  }
}

}  // namespace
}  // namespace cohort
