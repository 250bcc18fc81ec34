// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/hash_functions.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

namespace cohort::keras::internal {
namespace {

constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127;
constexpr uint64_t kFarm1 = 0xb492b66fbe98f273;
constexpr uint64_t kFarm2 = 0x9ae16a3b2f90404f;
constexpr std::size_t kFarmBlock = 64;

// Numbers in texts are little-endian, as this machine's.
static_assert(std::endian::native == std::endian::little);
template <class Word = uint64_t>
uint64_t word_at(const char* at) {
  Word word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

uint64_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

uint64_t folded(uint64_t x) { return x ^ (x >> 47); }

uint64_t mixed(uint64_t u, uint64_t v, uint64_t factor) {
  const uint64_t a = folded((u ^ v) * factor);
  return folded((v ^ a) * factor) * factor;
}

// A factor for texts of up to 64 bytes.
uint64_t factor_of(std::size_t length) { return kFarm2 + length * 2; }

uint64_t farm_up_to_16(std::string_view text) {
  const std::size_t length = text.size();
  const char* const end = text.data() + length;
  if (length >= 8) {
    const uint64_t factor = factor_of(length);
    const uint64_t a = word_at(text.data()) + kFarm2;
    const uint64_t b = word_at(end - 8);
    return mixed(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor, factor);
  }
  if (length >= 4) {
    const uint64_t a = word_at<uint32_t>(text.data());
    return mixed(length + (a << 3), word_at<uint32_t>(end - 4), factor_of(length));
  }
  if (length == 0) return kFarm2;
  const uint64_t y = byte_at(text, 0) + (byte_at(text, length >> 1) << 8);
  const uint64_t z = length + (byte_at(text, length - 1) << 2);
  return folded(y * kFarm2 ^ z * kFarm0) * kFarm2;
}

// Of `words` at both ends and a factor: what texts of 17 to 64 bytes begin with.
struct FarmEnds {
  uint64_t first, second, sum;
};
FarmEnds farm_ends(std::string_view text, uint64_t first_factor, uint64_t factor) {
  const char* const end = text.data() + text.size();
  const uint64_t a = word_at(text.data()) * first_factor;
  const uint64_t b = word_at(text.data() + 8);
  const uint64_t c = word_at(end - 8) * factor;
  const uint64_t d = word_at(end - 16) * kFarm2;
  const uint64_t sum = std::rotr(a + b, 43) + std::rotr(c, 30) + d;
  return {a, mixed(sum, a + std::rotr(b + kFarm2, 18) + c, factor), sum};
}

uint64_t farm_up_to_64(std::string_view text) {
  const uint64_t factor = factor_of(text.size());
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const FarmEnds ends = farm_ends(text, kFarm2, factor);
  const uint64_t e = word_at(begin + 16) * factor;
  const uint64_t f = word_at(begin + 24);
  const uint64_t g = (ends.sum + word_at(end - 32)) * factor;
  const uint64_t h = (ends.second + word_at(end - 24)) * factor;
  return mixed(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + ends.first, 18) + g,
               factor);
}

struct FarmPair {
  uint64_t first = 0, second = 0;
};

FarmPair farm_block(const char* at, uint64_t a, uint64_t b) {
  const uint64_t z = word_at(at + 24);
  a += word_at(at);
  b = std::rotr(b + a + z, 21);
  const uint64_t before = a;
  a += word_at(at + 8);
  a += word_at(at + 16);
  b += std::rotr(a, 44);
  return {a + z, b + before};
}

struct FarmState {
  uint64_t x, y, z;
  FarmPair v = {}, w = {};

  // The last block counts differently: `factor` and `weight`.
  void take(const char* at, uint64_t factor, uint64_t weight) {
    x = std::rotr(x + y + v.first + word_at(at + 8), 37) * factor;
    y = std::rotr(y + v.second + word_at(at + 48), 42) * factor;
    x ^= w.second * weight;
    y += v.first * weight + word_at(at + 40);
    z = std::rotr(z + w.first, 33) * factor;
    v = farm_block(at, v.second * factor, x + w.first);
    w = farm_block(at + 32, z + w.second, y + word_at(at + 16));
    std::swap(z, x);
  }
};

uint64_t farm_long(std::string_view text) {
  constexpr uint64_t kSeed = 81;
  constexpr uint64_t kSeedY = kSeed * kFarm1 + 113;
  FarmState state{kSeed * kFarm2 + word_at(text.data()), kSeedY,
                  folded(kSeedY * kFarm2 + 113) * kFarm2};
  const std::size_t rest = (text.size() - 1) % kFarmBlock;  // of the last block, less one
  const std::size_t whole = text.size() - 1 - rest;
  for (std::size_t i = 0; i < whole; i += kFarmBlock) state.take(text.data() + i, kFarm1, 1);
  const uint64_t factor = kFarm1 + ((state.z & 0xff) << 1);
  state.w.first += rest;
  state.v.first += state.w.first;
  state.w.first += state.v.first;
  state.take(text.data() + text.size() - kFarmBlock, factor, 9);
  return mixed(mixed(state.v.first, state.w.first, factor) + folded(state.y) * kFarm0 + state.z,
               mixed(state.v.second, state.w.second, factor) + state.x, factor);
}

struct SipState {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
  void take(uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

}  // namespace

uint64_t farm_fingerprint64(std::string_view text) {
  if (text.size() <= 16) return farm_up_to_16(text);
  if (text.size() <= 32) return farm_ends(text, kFarm1, factor_of(text.size())).second;
  if (text.size() <= kFarmBlock) return farm_up_to_64(text);
  return farm_long(text);
}

uint64_t sip_hash(const std::array<uint64_t, 2>& key, std::string_view text) {
  SipState state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                 key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  const std::size_t whole = text.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) state.take(word_at(text.data() + i));
  uint64_t last = uint64_t{text.size()} << 56;
  for (std::size_t i = whole; i < text.size(); ++i) last |= byte_at(text, i) << (8 * (i - whole));
  state.take(last);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

uint64_t joined_fingerprint(uint64_t first, uint64_t second) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  const uint64_t both = first ^ kFactor ^ (folded(second * kFactor) * kFactor);
  return folded(folded(both * kFactor) * kFactor);
}

int64_t TextBins::operator()(std::string_view text) const {
  const uint64_t hash = key_ ? sip_hash(*key_, text) : farm_fingerprint64(text);
  return static_cast<int64_t>(hash % bins_);
}

int64_t TextBins::operator()(int64_t number) const {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return (*this)(
      std::string_view(digits.data(), static_cast<std::size_t>(end.ptr - digits.data())));
}

}  // namespace cohort::keras::internal
