// SPDX-License-Identifier: Apache-2.0
//
// The door between reductions and their kernels: one source (reduce_kernels.inc) compiled once per
// instruction set. Plain data only: an inline function of the standard library, compiled here for
// AVX-512, could be the copy that the linker keeps for all callers.
#pragma once

#include <cstddef>

namespace cohort::internal::reductions {

/// out[i] = (sources[0][i] + sources[1][i] + ...) / divisor for [begin, end) of every output, in
/// this order. An output may be a source.
template <class T>
struct SumCall {
  const T* const* sources;
  std::size_t source_count;  ///< At least 1.
  T* const* outs;
  std::size_t out_count;
  std::size_t begin;
  std::size_t end;
  T divisor;    ///< 1: the sum.
  bool stream;  ///< Past the caches: for outputs that would not stay there. Ordered at return.
};

struct ReduceKernels {
  void (*sum_float)(const SumCall<float>& call);
  void (*sum_double)(const SumCall<double>& call);
};

namespace base {
extern const ReduceKernels kReduceKernels;
}
namespace avx2 {
extern const ReduceKernels kReduceKernels;
}
namespace avx512 {
extern const ReduceKernels kReduceKernels;
}

/// Those of current_isa().
const ReduceKernels& reduce_kernels();

}  // namespace cohort::internal::reductions
