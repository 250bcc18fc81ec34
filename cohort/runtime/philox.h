// SPDX-License-Identifier: Apache-2.0
//
// The generator behind random.h: Philox 4x32-10, which makes four random words of a counter and a
// key. A group is 16 blocks with consecutive counters, ordered word by word: all first words, then
// all second ones. So the blocks are computed side by side and stored as they come.
//
// Words are exact on any processor. Only they are computed by instruction set; what is made of them
// is not, so that it rounds the same.
#pragma once

#include <array>
#include <cstdint>

namespace cohort::internal::runtime {

/// Blocks in a group.
inline constexpr uint64_t kPhiloxLanes = 16;
/// Words in a group.
inline constexpr uint64_t kPhiloxGroup = 4 * kPhiloxLanes;

/// The block of one counter.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// `groups` groups from a counter on whose lowest word is a multiple of 16; it carries into the
/// second word. Cost: about 0.6 ns a word with AVX-512. Threads: thread-safe.
void philox_groups(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key, uint64_t groups,
                   uint32_t* out);

}  // namespace cohort::internal::runtime
