// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/row_kernels.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sort.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "cohort/base/check.h"
#include "cohort/cuda/internal/dtypes.h"
#include "cohort/cuda/internal/row_kernels.h"

namespace cohort::internal::cuda {
namespace {

using values::RowOp;

RowChange change_of(RowOp op) {
  switch (op) {
    case RowOp::kAdd:
      return RowChange::kAdd;
    case RowOp::kSub:
      return RowChange::kSub;
    case RowOp::kMul:
      return RowChange::kMul;
    case RowOp::kDiv:
      return RowChange::kDiv;
    case RowOp::kMin:
      return RowChange::kMin;
    case RowOp::kMax:
      return RowChange::kMax;
    case RowOp::kUpdate:
      break;
  }
  return RowChange::kUpdate;
}

// A complex number is two real ones, where each is changed by itself.
DType part_of(RowOp op, DType dtype) {
  const bool by_parts = op == RowOp::kAdd || op == RowOp::kSub || op == RowOp::kUpdate;
  return at::isComplexType(dtype) && by_parts ? c10::toRealValueType(dtype) : dtype;
}

}  // namespace

void CudaRowKernels::combine(RowOp op, Tensor& to, const Tensor& indices, const Tensor& rows) {
  if (indices.numel() == 0 || to.numel() == 0) return;
  COHORT_CHECK(to.is_contiguous() && rows.is_contiguous() && rows.scalar_type() == to.scalar_type(),
               "rows and tables whose elements stand in a row");
  const DType dtype = part_of(op, to.scalar_type());
  const std::optional<Number> number = number_of(dtype);
  if (!number || (dtype == kBool && op != RowOp::kUpdate)) {
    throw Unimplemented(str_cat("[scatter] expected integers or floating numbers on a GPU, got ",
                                dtype_name(to.scalar_type())));
  }
  const at::NoGradGuard no_grad;
  // Stable: equal numbers keep their order.
  const auto [numbers, order] =
      at::sort(indices.reshape({-1}).to(kInt64), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  RowsChange change;
  change.change = change_of(op);
  change.number = *number;
  change.table = to.mutable_data_ptr();
  change.table_rows = to.size(0);
  change.rows = rows.const_data_ptr();
  change.numbers = numbers.const_data_ptr<int64_t>();
  change.order = order.const_data_ptr<int64_t>();
  change.count = static_cast<std::size_t>(indices.numel());
  change.width = to.nbytes() / c10::elementSize(dtype) / static_cast<std::size_t>(to.size(0));
  C10_CUDA_CHECK(launch_change_rows(change, c10::cuda::getCurrentCUDAStream()));
}

}  // namespace cohort::internal::cuda
