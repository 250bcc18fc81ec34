// SPDX-License-Identifier: Apache-2.0
#include "cohort/cuda/internal/step_values.h"

#include <cstdint>

namespace cohort::internal::cuda {
namespace {

constexpr unsigned kThreadsOfValues = 128;
constexpr std::size_t kMostWords = 448;  // arguments have 4 KB

struct Words {
  std::uint64_t word[kMostWords];
};

__global__ void write_words(const __grid_constant__ Words words, unsigned count,
                            std::uint64_t* to) {
  for (unsigned i = threadIdx.x; i < count; i += kThreadsOfValues) to[i] = words.word[i];
}

}  // namespace

cudaError_t launch_values(const std::byte* from, std::size_t bytes, std::byte* to,
                          cudaStream_t stream) {
  auto* const words_to = reinterpret_cast<std::uint64_t*>(to);
  const std::size_t all = bytes / sizeof(std::uint64_t);
  for (std::size_t begin = 0; begin < all; begin += kMostWords) {
    const std::size_t count = all - begin < kMostWords ? all - begin : kMostWords;
    Words words;
    __builtin_memcpy(words.word, from + begin * sizeof(std::uint64_t),
                     count * sizeof(std::uint64_t));
    write_words<<<1, kThreadsOfValues, 0, stream>>>(words, static_cast<unsigned>(count),
                                                    words_to + begin);
  }
  return cudaGetLastError();
}

}  // namespace cohort::internal::cuda
