// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "cohort/cuda/internal/number.h"
#include "cohort/runtime/tensor.h"

namespace cohort::internal::cuda {

/// What the kernels call a dtype; nothing for complex numbers and those below 8 bits.
inline std::optional<Number> number_of(DType dtype) {
  switch (dtype) {
    case kFloat32:
      return Number::kFloat;
    case kFloat64:
      return Number::kDouble;
    case kFloat16:
      return Number::kHalf;
    case kBFloat16:
      return Number::kBFloat16;
    case DType::Char:
      return Number::kInt8;
    case DType::Short:
      return Number::kInt16;
    case kInt32:
      return Number::kInt32;
    case kInt64:
      return Number::kInt64;
    case kBool:
    case DType::Byte:
      return Number::kUInt8;
    case DType::UInt16:
      return Number::kUInt16;
    case DType::UInt32:
      return Number::kUInt32;
    case DType::UInt64:
      return Number::kUInt64;
    default:
      return std::nullopt;
  }
}

}  // namespace cohort::internal::cuda
