// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/internal/arithmetic.cuh"
#include "cohort/cuda/internal/elements.cuh"
#include "cohort/cuda/internal/row_kernels.h"

namespace cohort::internal::cuda {
namespace {

// Integers truncate. The lowest number over -1 does not fit: it wraps.
template <class T>
__device__ T quotient(T a, T b) {
  if constexpr (T(-1) < T(0) && T(3) / T(2) == T(1)) {
    if (b == T(-1)) return static_cast<T>(0 - static_cast<unsigned long long>(a));
  }
  return static_cast<T>(a / b);
}

template <RowChange kChange, class T>
__device__ T changed(T before, T by) {
  using A = Arithmetic<T>;
  const auto a = A::up(before), b = A::up(by);
  if constexpr (kChange == RowChange::kAdd) return A::down(a + b);
  if constexpr (kChange == RowChange::kSub) return A::down(a - b);
  if constexpr (kChange == RowChange::kMul) return A::down(a * b);
  if constexpr (kChange == RowChange::kDiv) return A::down(quotient(a, b));
  if constexpr (kChange == RowChange::kMin) return b < a ? by : before;
  if constexpr (kChange == RowChange::kMax) return a < b ? by : before;
  if constexpr (kChange == RowChange::kUpdate) return by;
}

// 1 << shift threads share the row that the first of equal numbers names.
template <class T, RowChange kChange>
__global__ void __launch_bounds__(kThreads)
    change_rows(const __grid_constant__ RowsChange call, unsigned shift) {
  constexpr std::size_t kAhead = 4;  // rows that are under way at once
  const T* const rows = static_cast<const T*>(call.rows);
  const std::size_t team = std::size_t{1} << shift;
  const std::size_t me = thread_of_grid() & (team - 1);
  const std::size_t teams = threads_of_grid() >> shift;
  for (std::size_t first = thread_of_grid() >> shift; first < call.count; first += teams) {
    const std::int64_t number = call.numbers[first];
    if (number < 0 || number >= call.table_rows) continue;
    if (first > 0 && call.numbers[first - 1] == number) continue;
    T* const row = static_cast<T*>(call.table) + static_cast<std::size_t>(number) * call.width;
    for (std::size_t j = me; j < call.width; j += team) {
      const auto by = [&](std::size_t i) {
        return rows[static_cast<std::size_t>(call.order[i]) * call.width + j];
      };
      T value = row[j];
      std::size_t i = first;
      for (; i + kAhead <= call.count && call.numbers[i + kAhead - 1] == number; i += kAhead) {
        T next[kAhead];
#pragma unroll
        for (std::size_t k = 0; k < kAhead; ++k) next[k] = by(i + k);
#pragma unroll
        for (std::size_t k = 0; k < kAhead; ++k) value = changed<kChange>(value, next[k]);
      }
      for (; i < call.count && call.numbers[i] == number; ++i) {
        value = changed<kChange>(value, by(i));
      }
      row[j] = value;
    }
  }
}

template <class T, RowChange kChange>
void start_rows(const RowsChange& call, cudaStream_t stream) {
  unsigned shift = 0;
  while ((std::size_t{1} << shift) < call.width && (1u << shift) < kThreads) ++shift;
  change_rows<T, kChange><<<blocks_for(call.count << shift), kThreads, 0, stream>>>(call, shift);
}

// `Wrapped`: the unsigned type of T's size, where T is an integer.
template <class T, class Wrapped = T>
void start_change(const RowsChange& call, cudaStream_t stream) {
  switch (call.change) {
    case RowChange::kAdd:
      return start_rows<Wrapped, RowChange::kAdd>(call, stream);
    case RowChange::kSub:
      return start_rows<Wrapped, RowChange::kSub>(call, stream);
    case RowChange::kMul:
      return start_rows<Wrapped, RowChange::kMul>(call, stream);
    case RowChange::kDiv:
      return start_rows<T, RowChange::kDiv>(call, stream);
    case RowChange::kMin:
      return start_rows<T, RowChange::kMin>(call, stream);
    case RowChange::kMax:
      return start_rows<T, RowChange::kMax>(call, stream);
    case RowChange::kUpdate:
      return;
  }
}

void start_update(const RowsChange& call, cudaStream_t stream) {
  switch (call.number) {
    case Number::kInt8:
    case Number::kUInt8:
      return start_rows<std::uint8_t, RowChange::kUpdate>(call, stream);
    case Number::kHalf:
    case Number::kBFloat16:
    case Number::kInt16:
    case Number::kUInt16:
      return start_rows<std::uint16_t, RowChange::kUpdate>(call, stream);
    case Number::kFloat:
    case Number::kInt32:
    case Number::kUInt32:
      return start_rows<std::uint32_t, RowChange::kUpdate>(call, stream);
    case Number::kDouble:
    case Number::kInt64:
    case Number::kUInt64:
      return start_rows<std::uint64_t, RowChange::kUpdate>(call, stream);
  }
}

void start_by_number(const RowsChange& call, cudaStream_t stream) {
  switch (call.number) {
    case Number::kFloat:
      return start_change<float>(call, stream);
    case Number::kDouble:
      return start_change<double>(call, stream);
    case Number::kHalf:
      return start_change<__half>(call, stream);
    case Number::kBFloat16:
      return start_change<__nv_bfloat16>(call, stream);
    case Number::kInt8:
      return start_change<std::int8_t, std::uint8_t>(call, stream);
    case Number::kInt16:
      return start_change<std::int16_t, std::uint16_t>(call, stream);
    case Number::kInt32:
      return start_change<std::int32_t, std::uint32_t>(call, stream);
    case Number::kInt64:
      return start_change<std::int64_t, std::uint64_t>(call, stream);
    case Number::kUInt8:
      return start_change<std::uint8_t>(call, stream);
    case Number::kUInt16:
      return start_change<std::uint16_t>(call, stream);
    case Number::kUInt32:
      return start_change<std::uint32_t>(call, stream);
    case Number::kUInt64:
      return start_change<std::uint64_t>(call, stream);
  }
}

}  // namespace

cudaError_t launch_change_rows(const RowsChange& change, cudaStream_t stream) {
  if (change.count == 0 || change.width == 0 || change.table_rows == 0) return cudaSuccess;
  change.change == RowChange::kUpdate ? start_update(change, stream)
                                      : start_by_number(change, stream);
  return cudaGetLastError();
}

}  // namespace cohort::internal::cuda
