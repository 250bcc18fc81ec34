// SPDX-License-Identifier: Apache-2.0
//
// Numbers of 16 bits are combined in float and rounded after each step, as LibTorch does. Signed
// integers are added and multiplied as unsigned ones, which wrap.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace cohort::internal::cuda {

/// What numbers of a type are combined in.
template <class T>
struct Arithmetic {
  using Type = T;
  static __device__ T up(T x) { return x; }
  static __device__ T down(T x) { return x; }
};
template <>
struct Arithmetic<__half> {
  using Type = float;
  static __device__ float up(__half x) { return __half2float(x); }
  static __device__ __half down(float x) { return __float2half_rn(x); }
};
template <>
struct Arithmetic<__nv_bfloat16> {
  using Type = float;
  static __device__ float up(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 down(float x) { return __float2bfloat16_rn(x); }
};
// Whose products do not fit into an int.
template <>
struct Arithmetic<std::uint16_t> {
  using Type = std::uint32_t;
  static __device__ std::uint32_t up(std::uint16_t x) { return x; }
  static __device__ std::uint16_t down(std::uint32_t x) { return static_cast<std::uint16_t>(x); }
};

}  // namespace cohort::internal::cuda
