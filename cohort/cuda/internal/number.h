// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cohort::internal::cuda {

/// Unsigned numbers have the sums and products of signed ones; bool has min and max as kUInt8.
enum class Number {
  kFloat,
  kDouble,
  kHalf,
  kBFloat16,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64
};

}  // namespace cohort::internal::cuda
