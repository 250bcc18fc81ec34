// SPDX-License-Identifier: Apache-2.0
//
// Changes of inputs that know what the inputs are made of: JSON stays JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "cohort/keras/config.h"

namespace cohort::fuzz {

/// The same numbers on every machine. Threads: one.
class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  /// 0 for 0.
  std::size_t below(std::size_t end) { return end == 0 ? 0 : bits_() % end; }
  bool once_in(std::size_t times) { return below(times) == 0; }
  uint64_t bits() { return bits_(); }

 private:
  std::mt19937_64 bits_;
};

/// What befalls files: a flipped bit, a few bytes written over, an end that is missing, a part that
/// is, or is there twice, a block of zeros.
std::string damaged(std::string bytes, Random& random);
/// What somebody may put there: as damaged(), and sizes and places that are chosen badly.
std::string changed_bytes(std::string bytes, Random& random);

/// A value, a name or the order of some parts is another.
keras::Config changed_config(const keras::Config& config, Random& random);

}  // namespace cohort::fuzz
