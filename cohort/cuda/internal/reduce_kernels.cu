// SPDX-License-Identifier: Apache-2.0
//
// Numbers of 16 bits are combined in float and rounded after each step, as LibTorch does.
#include "cohort/cuda/internal/reduce_kernels.h"

#include "cohort/cuda/internal/arithmetic.cuh"
#include "cohort/cuda/internal/elements.cuh"

namespace cohort::internal::cuda {
namespace {

// A NaN on either side stays one.
template <Combine kCombine, class T>
__device__ T combined(T a, T b) {
  if constexpr (kCombine == Combine::kSum) return static_cast<T>(a + b);
  if constexpr (kCombine == Combine::kProduct) return static_cast<T>(a * b);
  if constexpr (kCombine == Combine::kMin) return a != a ? a : (b != b ? b : (b < a ? b : a));
  if constexpr (kCombine == Combine::kMax) return a != a ? a : (b != b ? b : (a < b ? b : a));
}

template <class T>
struct ReducedArrays {
  const T* sources[kMostArrays];
  T* outs[kMostArrays];
  int source_count, out_count;
  typename Arithmetic<T>::Type divisor;
  bool divides;

  explicit ReducedArrays(const ReduceLaunch& call)
      : source_count(static_cast<int>(call.source_count)),
        out_count(static_cast<int>(call.out_count)),
        divisor(static_cast<typename Arithmetic<T>::Type>(call.divisor)),
        divides(call.divisor != 1) {
    for (int s = 0; s < source_count; ++s) sources[s] = static_cast<const T*>(call.sources[s]);
    for (int o = 0; o < out_count; ++o) outs[o] = static_cast<T*>(call.outs[o]);
  }
};

template <Combine kCombine, class T>
__device__ T step(T total, T next) {
  using A = Arithmetic<T>;
  return A::down(combined<kCombine>(A::up(total), A::up(next)));
}

template <class T>
__device__ T divided(const ReducedArrays<T>& arrays, T total) {
  using A = Arithmetic<T>;
  return arrays.divides ? A::down(A::up(total) / arrays.divisor) : total;
}

// All sources of an element are read before an output is written, which may be one of them.
template <class T, Combine kCombine>
__global__ void __launch_bounds__(kThreads)
    reduce_elements(const __grid_constant__ ReducedArrays<T> arrays,
                    const __grid_constant__ Cut cut) {
  const std::size_t stride = threads_of_grid();
  for (std::size_t v = thread_of_grid(); v < cut.vectors; v += stride) {
    const std::size_t i = cut.aligned + v * kLanes<T>;
    Vector<T> total = load(arrays.sources[0] + i);
    for (int s = 1; s < arrays.source_count; ++s) {
      const Vector<T> next = load(arrays.sources[s] + i);
#pragma unroll
      for (std::size_t k = 0; k < kLanes<T>; ++k) {
        total.lane[k] = step<kCombine>(total.lane[k], next.lane[k]);
      }
    }
#pragma unroll
    for (std::size_t k = 0; k < kLanes<T>; ++k) total.lane[k] = divided(arrays, total.lane[k]);
    for (int o = 0; o < arrays.out_count; ++o) store(arrays.outs[o] + i, total);
  }
  for (std::size_t r = thread_of_grid(); r < cut.rest(); r += stride) {
    const std::size_t i = cut.outside(r);
    T total = arrays.sources[0][i];
    for (int s = 1; s < arrays.source_count; ++s) {
      total = step<kCombine>(total, arrays.sources[s][i]);
    }
    total = divided(arrays, total);
    for (int o = 0; o < arrays.out_count; ++o) arrays.outs[o][i] = total;
  }
}

template <class T, Combine kCombine>
void start(const ReduceLaunch& call, cudaStream_t stream) {
  Alignment alignment(sizeof(T), call.begin);
  for (std::size_t s = 0; s < call.source_count; ++s) alignment.add(call.sources[s]);
  for (std::size_t o = 0; o < call.out_count; ++o) alignment.add(call.outs[o]);
  const Cut cut = alignment.cut(call.end);
  reduce_elements<T, kCombine>
      <<<blocks_for(cut), kThreads, 0, stream>>>(ReducedArrays<T>(call), cut);
}

template <class T>
void start_ordered(const ReduceLaunch& call, cudaStream_t stream) {
  switch (call.combine) {
    case Combine::kMin:
      return start<T, Combine::kMin>(call, stream);
    case Combine::kMax:
      return start<T, Combine::kMax>(call, stream);
    default:
      return;
  }
}

// `Wrapped`: the type whose sums and products have T's bits.
template <class T, class Wrapped = T>
void start_any(const ReduceLaunch& call, cudaStream_t stream) {
  switch (call.combine) {
    case Combine::kSum:
      return start<Wrapped, Combine::kSum>(call, stream);
    case Combine::kProduct:
      return start<Wrapped, Combine::kProduct>(call, stream);
    default:
      return start_ordered<T>(call, stream);
  }
}

}  // namespace

cudaError_t launch_reduce(const ReduceLaunch& reduce, cudaStream_t stream) {
  if (reduce.begin >= reduce.end || reduce.source_count == 0) return cudaSuccess;
  switch (reduce.number) {
    case Number::kFloat:
      start_any<float>(reduce, stream);
      break;
    case Number::kDouble:
      start_any<double>(reduce, stream);
      break;
    case Number::kHalf:
      start_any<__half>(reduce, stream);
      break;
    case Number::kBFloat16:
      start_any<__nv_bfloat16>(reduce, stream);
      break;
    case Number::kInt8:
      start_any<std::int8_t, std::uint8_t>(reduce, stream);
      break;
    case Number::kInt16:
      start_any<std::int16_t, std::uint16_t>(reduce, stream);
      break;
    case Number::kInt32:
      start_any<std::int32_t, std::uint32_t>(reduce, stream);
      break;
    case Number::kInt64:
      start_any<std::int64_t, std::uint64_t>(reduce, stream);
      break;
    case Number::kUInt8:
      start_any<std::uint8_t>(reduce, stream);
      break;
    case Number::kUInt16:
      start_any<std::uint16_t>(reduce, stream);
      break;
    case Number::kUInt32:
      start_any<std::uint32_t>(reduce, stream);
      break;
    case Number::kUInt64:
      start_any<std::uint64_t>(reduce, stream);
      break;
  }
  return cudaGetLastError();
}

}  // namespace cohort::internal::cuda
