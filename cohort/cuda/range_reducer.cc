// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/range_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/cuda/internal/dtypes.h"
#include "cohort/cuda/internal/reduce_kernels.h"

namespace cohort::internal::cuda {
namespace {

using reductions::RangeReduction;

Combine combine_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return Combine::kSum;
    case ReduceOp::kProduct:
      return Combine::kProduct;
    case ReduceOp::kMin:
      return Combine::kMin;
    case ReduceOp::kMax:
      return Combine::kMax;
  }
  return Combine::kSum;
}

// Complex numbers have no order: sums, means and products alone come here.
void reduce_by_libtorch(const RangeReduction& range) {
  const at::NoGradGuard no_grad;
  const auto item = static_cast<int64_t>(c10::elementSize(range.dtype));
  const auto view = [&](const void* data) {
    // Only outputs are written. LibTorch finds the device of the address.
    auto* const first = const_cast<std::byte*>(static_cast<const std::byte*>(data));
    return at::from_blob(first + range.begin * item, {range.end - range.begin},
                         at::TensorOptions().dtype(range.dtype).device(at::kCUDA));
  };
  Tensor total = view(range.sources[0]).clone();
  for (const void* source : range.sources.subspan(1)) {
    const Tensor next = view(source).to(total.device());
    range.op == ReduceOp::kProduct ? total.mul_(next) : total.add_(next);
  }
  if (range.op == ReduceOp::kMean) total.div_(range.divisor);
  for (void* out : range.outs) view(out).copy_(total, /*non_blocking=*/true);
}

}  // namespace

void CudaRangeReducer::reduce(const RangeReduction& range) {
  const std::optional<Number> number = number_of(range.dtype);
  if (!number) return reduce_by_libtorch(range);
  if (range.sources.size() > kMostArrays || range.outs.size() > kMostArrays) {
    throw Unimplemented(str_cat("[reduce] expected at most ", kMostArrays,
                                " values on GPUs and as many results, got ", range.sources.size(),
                                " and ", range.outs.size()));
  }
  ReduceLaunch launch;
  launch.number = *number;
  launch.combine = combine_of(range.op);
  std::copy(range.sources.begin(), range.sources.end(), launch.sources);
  launch.source_count = range.sources.size();
  std::copy(range.outs.begin(), range.outs.end(), launch.outs);
  launch.out_count = range.outs.size();
  launch.begin = static_cast<std::size_t>(range.begin);
  launch.end = static_cast<std::size_t>(range.end);
  if (range.op == ReduceOp::kMean) launch.divisor = range.divisor;
  C10_CUDA_CHECK(launch_reduce(launch, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace cohort::internal::cuda
