// SPDX-License-Identifier: Apache-2.0
//
// LibTorch adds no unsigned numbers but those of uint8: uint16, uint32 and uint64 are added as
// int64, whose sums have the same bits.
#pragma once

#include "cohort/runtime/tensor.h"

namespace cohort::internal::reductions {

/// Of uint64 the same bits, of others the same numbers.
inline Tensor as_int64(const Tensor& x) {
  return x.scalar_type() == DType::UInt64 ? x.view(kInt64) : x.to(kInt64);
}

/// Back to `dtype`.
inline Tensor from_int64(const Tensor& x, DType dtype) {
  return dtype == DType::UInt64 ? x.view(dtype) : x.to(dtype);
}

/// Adds x to, or subtracts it from, a tensor of its dtype.
inline void add_unsigned(Tensor& to, const Tensor& x, bool subtract = false) {
  const Tensor before = as_int64(to), by = as_int64(x);
  to.copy_(from_int64(subtract ? before - by : before + by, to.scalar_type()));
}

}  // namespace cohort::internal::reductions
