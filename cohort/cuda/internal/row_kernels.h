// SPDX-License-Identifier: Apache-2.0
//
// The door between the class and the kernels of rows: plain data, and launches on a stream.
// Addresses are the device's.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>

#include "cohort/cuda/internal/number.h"

namespace cohort::internal::cuda {

enum class RowChange { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

/// Row numbers[i] of the table is changed by row order[i] of `rows`. Equal numbers stand together,
/// and are applied one after another; numbers that are not in [0, table_rows) are passed over.
struct RowsChange {
  RowChange change = {};
  Number number = {};  ///< For kUpdate one of this size.
  void* table = nullptr;
  std::int64_t table_rows = 0;
  const void* rows = nullptr;
  const std::int64_t* numbers = nullptr;
  const std::int64_t* order = nullptr;
  std::size_t count = 0;
  std::size_t width = 0;
};
cudaError_t launch_change_rows(const RowsChange& change, cudaStream_t stream);

}  // namespace cohort::internal::cuda
