// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/philox.h"

#include <cstddef>
#include <utility>

#include "cohort/base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal::runtime {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr uint32_t kLanes = 16;

// One body for most instruction sets: inlined into a function per set.
#define COHORT_INLINE [[gnu::always_inline]] inline

// A block of the generator. Straight code, so that a loop over lanes becomes vectors.
struct Block {
  uint32_t x0, x1, x2, x3;

  COHORT_INLINE void round(uint32_t k0, uint32_t k1) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * x0;
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * x2;
    x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ k0;
    x1 = static_cast<uint32_t>(product1);
    x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ k1;
    x3 = static_cast<uint32_t>(product0);
  }
  template <uint32_t... kRound>
  COHORT_INLINE void rounds(uint32_t k0, uint32_t k1, std::integer_sequence<uint32_t, kRound...>) {
    (round(k0 + kRound * kWeyl0, k1 + kRound * kWeyl1), ...);
  }
};
using Rounds = std::make_integer_sequence<uint32_t, 10>;

// The lowest counter word is a multiple of kLanes, so the lanes never carry.
COHORT_INLINE void one_group(const uint32_t* counter, const uint32_t* key,
                             uint32_t* __restrict out) {
  const uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  const uint32_t k0 = key[0], k1 = key[1];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    Block block = {c0 + lane, c1, c2, c3};
    block.rounds(k0, k1, Rounds());
    out[lane] = block.x0;
    out[lane + kLanes] = block.x1;
    out[lane + 2 * kLanes] = block.x2;
    out[lane + 3 * kLanes] = block.x3;
  }
}

COHORT_INLINE void some_groups(const uint32_t* counter, const uint32_t* key, uint64_t groups,
                               uint32_t* out) {
  uint32_t at[4] = {counter[0], counter[1], counter[2], counter[3]};
  for (uint64_t g = 0; g < groups; ++g, out += kPhiloxGroup) {
    one_group(at, key, out);
    at[0] += kLanes;
    if (at[0] == 0) ++at[1];  // The block's upper bits are the lowest of the next word.
  }
}

using SomeGroups = void (*)(const uint32_t*, const uint32_t*, uint64_t, uint32_t*);

void groups_base(const uint32_t* counter, const uint32_t* key, uint64_t groups, uint32_t* out) {
  some_groups(counter, key, groups, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void groups_avx2(const uint32_t* counter, const uint32_t* key,
                                                 uint64_t groups, uint32_t* out) {
  some_groups(counter, key, groups, out);
}
// Eight blocks, a word each 64 bits. The multiplication reads only the lower halves, so what the
// upper halves hold does not matter until the words are packed.
struct EightBlocks {
  __m512i x0, x1, x2, x3;
};
#define COHORT_AVX512 [[gnu::always_inline]] __attribute__((target("avx512f"))) inline

COHORT_AVX512 void round_of_eight(EightBlocks& b, __m512i k0, __m512i k1) {
  constexpr int kXorOfThree = 0x96;
  constexpr __mmask8 kAll = 0xFF;  // g++ 12 warns inside the unmasked intrinsics.
  const __m512i product0 = _mm512_maskz_mul_epu32(kAll, b.x0, _mm512_set1_epi64(kMultiplier0));
  const __m512i product1 = _mm512_maskz_mul_epu32(kAll, b.x2, _mm512_set1_epi64(kMultiplier1));
  b.x0 =
      _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAll, product1, 32), b.x1, k0, kXorOfThree);
  b.x1 = product1;
  b.x2 =
      _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(kAll, product0, 32), b.x3, k1, kXorOfThree);
  b.x3 = product0;
}

COHORT_AVX512 void pack(__m512i first, __m512i second, uint32_t* out) {
  const __m512i lower = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  _mm512_storeu_si512(out, _mm512_permutex2var_epi32(first, lower, second));
}

__attribute__((target("avx512f"))) void groups_avx512(const uint32_t* counter, const uint32_t* key,
                                                      uint64_t groups, uint32_t* out) {
  const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  uint32_t c0 = counter[0];
  uint32_t c1 = counter[1];
  for (uint64_t g = 0; g < groups; ++g, out += kPhiloxGroup) {
    EightBlocks a = {_mm512_add_epi64(lane, _mm512_set1_epi64(c0)), _mm512_set1_epi64(c1),
                     _mm512_set1_epi64(counter[2]), _mm512_set1_epi64(counter[3])};
    EightBlocks b = {_mm512_add_epi64(a.x0, _mm512_set1_epi64(8)), a.x1, a.x2, a.x3};
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    for (std::size_t round = 0; round < Rounds::size(); ++round, k0 += kWeyl0, k1 += kWeyl1) {
      const __m512i key0 = _mm512_set1_epi64(k0);
      const __m512i key1 = _mm512_set1_epi64(k1);
      round_of_eight(a, key0, key1);
      round_of_eight(b, key0, key1);
    }
    pack(a.x0, b.x0, out);
    pack(a.x1, b.x1, out + kLanes);
    pack(a.x2, b.x2, out + 2 * kLanes);
    pack(a.x3, b.x3, out + 3 * kLanes);
    c0 += kLanes;
    if (c0 == 0) ++c1;
  }
}
#endif

#if defined(__x86_64__)
SomeGroups current_groups() {
  return base::of_current_isa<SomeGroups>(groups_base, groups_avx2, groups_avx512);
}
#else
SomeGroups current_groups() { return groups_base; }
#endif

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  Block block = {counter[0], counter[1], counter[2], counter[3]};
  block.rounds(key[0], key[1], Rounds());
  return {block.x0, block.x1, block.x2, block.x3};
}

void philox_groups(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key, uint64_t groups,
                   uint32_t* out) {
  current_groups()(counter.data(), key.data(), groups, out);
}

}  // namespace cohort::internal::runtime
