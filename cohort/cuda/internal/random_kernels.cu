// SPDX-License-Identifier: Apache-2.0
//
// The words of runtime/philox.h in their order, and what runtime/random.cc makes of them. A thread
// computes as many neighbouring blocks as one draw takes words. The four words of a block lie 16
// words apart, so a thread has the words of four draws, or pairs of draws.
#include "cohort/cuda/internal/elements.cuh"
#include "cohort/cuda/internal/random_kernels.h"

namespace cohort::internal::cuda {
namespace {

constexpr std::uint64_t kLanesOfGroup = 16;  // runtime::kPhiloxLanes
constexpr std::uint64_t kWordsOfGroup = 64;

struct PhiloxBlock {
  std::uint32_t word[4];
};

__device__ PhiloxBlock philox_block(const Draws& draws, std::uint64_t block) {
  std::uint32_t x0 = draws.counter[0] + static_cast<std::uint32_t>(block);
  std::uint32_t x1 = draws.counter[1] | (static_cast<std::uint32_t>(block >> 32) & 0xFF);
  std::uint32_t x2 = draws.counter[2];
  std::uint32_t x3 = draws.counter[3];
  std::uint32_t k0 = draws.key[0], k1 = draws.key[1];
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53u, x0), low0 = 0xD2511F53u * x0;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57u, x2), low1 = 0xCD9E8D57u * x2;
    x0 = high1 ^ x1 ^ k0;
    x1 = low1;
    x2 = high0 ^ x3 ^ k1;
    x3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{x0, x1, x2, x3}};
}

// Those of a step that is recorded are in memory.
__device__ Draws draws_now(Draws draws) {
  if (draws.at == nullptr) return draws;
  for (int i = 0; i < 2; ++i) draws.key[i] = draws.at[i];
  for (int i = 0; i < 4; ++i) draws.counter[i] = draws.at[2 + i];
  return draws;
}

// Calls use(unit, words) for the units of kWords words that are below `units`.
template <int kWords, class Use>
__device__ void for_units(const Draws& given, std::uint64_t units, Use use) {
  const Draws draws = draws_now(given);
  constexpr std::uint64_t kTeams = kLanesOfGroup / kWords;  // threads to a group
  constexpr std::uint64_t kUnits = kWordsOfGroup / kWords;  // of a group
  const std::uint64_t groups = (units + kUnits - 1) / kUnits;
  const std::uint64_t stride = threads_of_grid();
  for (std::uint64_t t = thread_of_grid(); t < groups * kTeams; t += stride) {
    const std::uint64_t group = t / kTeams, team = t % kTeams;
    PhiloxBlock blocks[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      blocks[w] = philox_block(draws, group * kLanesOfGroup + team * kWords + w);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      std::uint32_t words[kWords];
#pragma unroll
      for (int w = 0; w < kWords; ++w) words[w] = blocks[w].word[k];
      const std::uint64_t unit = group * kUnits + k * kTeams + team;
      if (unit < units) use(unit, words);
    }
  }
}

// Threads that for_units() keeps busy.
template <int kWords>
std::size_t threads_for_units(std::uint64_t units) {
  constexpr std::uint64_t kUnits = kWordsOfGroup / kWords;
  return (units + kUnits - 1) / kUnits * (kLanesOfGroup / kWords);
}

__device__ std::uint64_t joined(std::uint32_t low, std::uint32_t high) {
  return low | static_cast<std::uint64_t>(high) << 32;
}

// In [0, 1).
__device__ float unit_of(const std::uint32_t* words, float) {
  return static_cast<float>(words[0] >> 8) * 0x1p-24f;
}
__device__ double unit_of(const std::uint32_t* words, double) {
  return static_cast<double>(joined(words[0], words[1]) >> 11) * 0x1p-53;
}

template <class T>
constexpr int kWordsEach = sizeof(T) == 4 ? 1 : 2;

template <class Bits>
__global__ void __launch_bounds__(kThreads)
    keep_mask(const __grid_constant__ Draws draws, std::uint32_t threshold, Bits bits) {
  Bits* const out = static_cast<Bits*>(draws.out);
  for_units<1>(draws, draws.size, [&](std::uint64_t i, const std::uint32_t* words) {
    out[i] = words[0] < threshold ? Bits(0) : bits;
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    uniform_numbers(const __grid_constant__ Draws draws, T low, T width, T last) {
  T* const out = static_cast<T*>(draws.out);
  for_units<kWordsEach<T>>(draws, draws.size, [&](std::uint64_t i, const std::uint32_t* words) {
    const T x = low + width * unit_of(words, T());
    out[i] = last < x ? last : x;
  });
}

// Box and Muller's transformation, in double for either T; u in (0, 1].
template <class T>
__device__ void normal_pair(const std::uint32_t* words, double& first, double& second) {
  double u, angle;
  if constexpr (sizeof(T) == 4) {
    u = (words[0] + 1.0) * 0x1p-32;
    angle = words[1] * 0x1p-32;
  } else {
    u = static_cast<double>((joined(words[0], words[1]) >> 11) + 1) * 0x1p-53;
    angle = unit_of(words + 2, 0.0);
  }
  const double radius = sqrt(-2 * log(u));
  angle *= 2 * 3.141592653589793;
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  first = radius * cosine;
  second = radius * sine;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    normal_numbers(const __grid_constant__ Draws draws, double mean, double stddev) {
  T* const out = static_cast<T*>(draws.out);
  const std::uint64_t size = draws.size;
  for_units<2 * kWordsEach<T>>(draws, (size + 1) / 2,
                               [&](std::uint64_t pair, const std::uint32_t* words) {
                                 double first, second;
                                 normal_pair<T>(words, first, second);
                                 out[2 * pair] = static_cast<T>(mean + stddev * first);
                                 if (2 * pair + 1 < size)
                                   out[2 * pair + 1] = static_cast<T>(mean + stddev * second);
                               });
}

template <class Bits>
void start_mask(const Draws& draws, std::uint32_t threshold, std::uint64_t bits,
                cudaStream_t stream) {
  keep_mask<Bits><<<blocks_for(threads_for_units<1>(draws.size)), kThreads, 0, stream>>>(
      draws, threshold, static_cast<Bits>(bits));
}

template <class T>
void start_uniform(const Draws& draws, double low, double width, double last, cudaStream_t stream) {
  const std::size_t threads = threads_for_units<kWordsEach<T>>(draws.size);
  uniform_numbers<T><<<blocks_for(threads), kThreads, 0, stream>>>(
      draws, static_cast<T>(low), static_cast<T>(width), static_cast<T>(last));
}

template <class T>
void start_normal(const Draws& draws, double mean, double stddev, cudaStream_t stream) {
  const std::size_t threads = threads_for_units<2 * kWordsEach<T>>((draws.size + 1) / 2);
  normal_numbers<T><<<blocks_for(threads), kThreads, 0, stream>>>(draws, mean, stddev);
}

}  // namespace

cudaError_t launch_keep_mask(const Draws& draws, std::uint32_t threshold, std::uint64_t bits,
                             std::size_t item, cudaStream_t stream) {
  if (draws.size == 0) return cudaSuccess;
  if (item == 2) start_mask<std::uint16_t>(draws, threshold, bits, stream);
  if (item == 4) start_mask<std::uint32_t>(draws, threshold, bits, stream);
  if (item == 8) start_mask<std::uint64_t>(draws, threshold, bits, stream);
  return cudaGetLastError();
}

cudaError_t launch_uniform(const Draws& draws, bool is_double, double low, double width,
                           double last, cudaStream_t stream) {
  if (draws.size == 0) return cudaSuccess;
  is_double ? start_uniform<double>(draws, low, width, last, stream)
            : start_uniform<float>(draws, low, width, last, stream);
  return cudaGetLastError();
}

cudaError_t launch_normal(const Draws& draws, bool is_double, double mean, double stddev,
                          cudaStream_t stream) {
  if (draws.size == 0) return cudaSuccess;
  is_double ? start_normal<double>(draws, mean, stddev, stream)
            : start_normal<float>(draws, mean, stddev, stream);
  return cudaGetLastError();
}

}  // namespace cohort::internal::cuda
