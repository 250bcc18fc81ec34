// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/row_kernels.h"

#include "cohort/base/check.h"
#include "cohort/runtime/device_backend.h"

namespace cohort::internal::values {
namespace {

runtime::ByDeviceType<RowKernels>& kernels_of_rows() {
  static runtime::ByDeviceType<RowKernels> table(nullptr, "row_kernels");
  return table;
}

}  // namespace

RowKernels* row_kernels(const Tensor& table) {
  if (table.is_cpu()) return nullptr;
  RowKernels* const found = kernels_of_rows().find(table.device().type());
  if (found != nullptr) return found;
  throw Unimplemented(str_cat("[indexed_slices] expected a table in the CPU's memory, got one on ",
                              table.device().str()));
}

}  // namespace cohort::internal::values
