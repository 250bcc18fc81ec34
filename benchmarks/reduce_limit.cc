// SPDX-License-Identifier: Apache-2.0
#include "reduce_limit.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "cohort/base/check.h"
#include "machine.h"
#include "pinned_threads.h"

namespace cohort::bench {

struct ReduceLimit::Arrays {
  explicit Arrays(std::int64_t floats) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t bytes = (floats * 4 + kHugePage - 1) / kHugePage * kHugePage;
    for (float*& array : all) {
      array = static_cast<float*>(std::aligned_alloc(kHugePage, bytes));
      COHORT_CHECK(array != nullptr, "no memory");
      madvise(array, bytes, MADV_HUGEPAGE);
      std::fill(array, array + floats, 1.0F);
    }
  }
  ~Arrays() {
    for (float* array : all) std::free(array);
  }
  float* all[4];
};

namespace {

struct Part {
  const float* a;
  const float* b;
  float* x;
  float* y;
  std::int64_t begin;
  std::int64_t end;
};

// Whole groups of 64 floats.
template <bool kStream>
__attribute__((target("avx512f"), noinline)) void add_avx512(const Part& p) {
  for (std::int64_t i = p.begin; i < p.end; i += 64) {
    __m512 sums[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sums[v] = _mm512_add_ps(_mm512_load_ps(p.a + i + 16 * v), _mm512_load_ps(p.b + i + 16 * v));
    }
    for (float* out : {p.x, p.y}) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        if (kStream) {
          _mm512_stream_ps(out + i + 16 * v, sums[v]);
        } else {
          _mm512_store_ps(out + i + 16 * v, sums[v]);
        }
      }
    }
  }
}

template <bool kStream>
__attribute__((target("avx2"), noinline)) void add_avx2(const Part& p) {
  for (std::int64_t i = p.begin; i < p.end; i += 64) {
    __m256 sums[8];
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      sums[v] = _mm256_add_ps(_mm256_load_ps(p.a + i + 8 * v), _mm256_load_ps(p.b + i + 8 * v));
    }
    for (float* out : {p.x, p.y}) {
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        if (kStream) {
          _mm256_stream_ps(out + i + 8 * v, sums[v]);
        } else {
          _mm256_store_ps(out + i + 8 * v, sums[v]);
        }
      }
    }
  }
}

template <bool kStream>
void add(const Part& part) {
  if (__builtin_cpu_supports("avx512f")) {
    add_avx512<kStream>(part);
  } else {
    add_avx2<kStream>(part);
  }
  if (kStream) _mm_sfence();
}

template <bool kStream>
double time_of(float* const (&arrays)[4], std::int64_t floats, const std::vector<int>& cores,
               std::int64_t steps) {
  double us = 0;
  on_cores(cores, [&](int index, SpinBarrier& barrier) {
    const std::int64_t half = floats / 2 / 64 * 64;
    const Part part{arrays[0],
                    arrays[1],
                    arrays[2],
                    arrays[3],
                    index == 0 ? 0 : half,
                    index == 0 ? half : floats};
    barrier.wait();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < steps; ++i) {
      barrier.wait();
      add<kStream>(part);
      barrier.wait();
    }
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - start;
    if (index == 0) us = spent.count() / static_cast<double>(steps);
  });
  return us;
}

}  // namespace

ReduceLimit::ReduceLimit(std::int64_t bytes, std::vector<int> cores)
    : floats_(bytes / 4), cores_(std::move(cores)), arrays_(std::make_unique<Arrays>(bytes / 4)) {
  COHORT_CHECK_ARG(bytes > 0 && bytes % 256 == 0, "[strategy_bench] expected groups of 256 bytes, ",
                   "got ", bytes);
  cores_.resize(2);
}
ReduceLimit::~ReduceLimit() = default;

double ReduceLimit::us(std::int64_t steps) {
  return std::min(time_of<false>(arrays_->all, floats_, cores_, steps),
                  time_of<true>(arrays_->all, floats_, cores_, steps));
}

}  // namespace cohort::bench
