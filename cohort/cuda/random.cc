// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/random.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cohort/base/check.h"
#include "cohort/cuda/internal/random_kernels.h"

namespace cohort::internal::cuda {
namespace {

Draws draws_of(const runtime::RandomStream& stream, Tensor& out) {
  COHORT_CHECK(out.is_contiguous(), "random numbers for a tensor whose elements stand in a row");
  Draws draws;
  std::copy(stream.key().begin(), stream.key().end(), draws.key);
  const auto counter = stream.first_counter();
  std::copy(counter.begin(), counter.end(), draws.counter);
  draws.out = out.mutable_data_ptr();
  draws.size = static_cast<std::size_t>(out.numel());
  draws.at = reinterpret_cast<const std::uint32_t*>(stream.place());
  return draws;
}

void check_wide(const char* operation, const Tensor& out) {
  COHORT_CHECK_ARG(out.scalar_type() == kFloat32 || out.scalar_type() == kFloat64, operation,
                   "expected float32 or float64, got ", dtype_name(out.scalar_type()));
}

// The mask's number other than 0, as the CPU rounds it.
std::uint64_t bits_of(double scale, DType dtype) {
  const auto single = static_cast<float>(scale);
  switch (dtype) {
    case kFloat64:
      return std::bit_cast<std::uint64_t>(scale);
    case kFloat32:
      return std::bit_cast<std::uint32_t>(single);
    case kFloat16:
      return c10::Half(single).x;
    case kBFloat16:
      return c10::BFloat16(single).x;
    default:
      break;
  }
  throw InvalidArgument(str_cat("[keep_mask] expected a floating dtype, got ", dtype_name(dtype)));
}

}  // namespace

void CudaRandomFiller::keep_mask(const runtime::RandomStream& stream, double rate, Tensor& out) {
  COHORT_CHECK_ARG(rate >= 0 && rate <= 1, "[keep_mask] expected a rate in [0, 1], got ", rate);
  if (rate == 0 || rate == 1) {
    out.fill_(1 - rate);
    return;
  }
  const auto threshold = static_cast<std::uint32_t>(std::min(rate * 0x1p32, 0x1p32 - 1));
  const std::uint64_t bits = bits_of(1 / (1 - rate), out.scalar_type());
  C10_CUDA_CHECK(launch_keep_mask(draws_of(stream, out), threshold, bits, out.element_size(),
                                  c10::cuda::getCurrentCUDAStream()));
}

void CudaRandomFiller::uniform(const runtime::RandomStream& stream, double low, double high,
                               Tensor& out) {
  check_wide("[uniform] ", out);
  const bool is_double = out.scalar_type() == kFloat64;
  const auto l = static_cast<float>(low), h = static_cast<float>(high);
  const double width = is_double ? high - low : h - l;
  const double last = is_double ? std::nextafter(high, low) : std::nextafter(h, l);
  C10_CUDA_CHECK(launch_uniform(draws_of(stream, out), is_double, low, width, last,
                                c10::cuda::getCurrentCUDAStream()));
}

void CudaRandomFiller::normal(const runtime::RandomStream& stream, double mean, double stddev,
                              Tensor& out) {
  check_wide("[normal] ", out);
  const bool is_double = out.scalar_type() == kFloat64;
  // The CPU's function takes them in the numbers' own precision.
  const double m = is_double ? mean : static_cast<float>(mean);
  const double s = is_double ? stddev : static_cast<float>(stddev);
  C10_CUDA_CHECK(
      launch_normal(draws_of(stream, out), is_double, m, s, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace cohort::internal::cuda
