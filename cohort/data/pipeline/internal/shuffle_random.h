// SPDX-License-Identifier: Apache-2.0
//
// The random numbers of shuffles: a counter and a key, so that a position is two numbers.
#pragma once

#include <cstdint>

namespace cohort::internal::data {

/// A bijection of 64 bits in which every input bit moves half of the output bits.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// The same numbers on every machine. Threads: one caller at a time.
class ShuffleRandom {
 public:
  ShuffleRandom(uint64_t seed, uint64_t pass) : key_(mix_bits(mix_bits(seed) + pass)) {}

  /// Uniform in [0, bound), without the bias of a remainder.
  uint64_t below(uint64_t bound) {
    unsigned __int128 product = static_cast<unsigned __int128>(bits()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (0 - bound) % bound;
      while (static_cast<uint64_t>(product) < threshold) {
        product = static_cast<unsigned __int128>(bits()) * bound;
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }

  /// Numbers drawn so far, and the way back there.
  uint64_t drawn() const { return counter_; }
  void skip_to(uint64_t drawn) { counter_ = drawn; }

 private:
  uint64_t bits() { return mix_bits(key_ + 0x9e3779b97f4a7c15ULL * counter_++); }

  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace cohort::internal::data
