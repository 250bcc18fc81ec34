// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a vocabulary, and the number of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::keras::internal {

/// Token is std::string or int64_t. Threads: thread-safe to read.
template <class Token>
class TokenTable {
 public:
  using View = std::conditional_t<std::is_same_v<Token, std::string>, std::string_view, int64_t>;

  TokenTable() = default;
  /// Of tokens that come once each: the first that comes twice has the later number.
  explicit TokenTable(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
    std::size_t slots = 16;
    while (slots < 2 * tokens_.size()) slots *= 2;
    slots_.resize(slots);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const uint64_t hash = hash_of(tokens_[i]);
      std::size_t slot = hash & (slots - 1);
      while (slots_[slot].number >= 0) slot = (slot + 1) & (slots - 1);
      slots_[slot] = {tag_of(hash), static_cast<int32_t>(i)};
    }
  }

  const std::vector<Token>& tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// The number of a token; -1: it is not there. Cost: one probe of the table, no copy.
  int64_t find(View token) const {
    if (tokens_.empty()) return -1;
    const uint64_t hash = hash_of(token);
    const uint32_t tag = tag_of(hash);
    const std::size_t last = slots_.size() - 1;
    for (std::size_t slot = hash & last;; slot = (slot + 1) & last) {
      const Slot& one = slots_[slot];
      if (one.number < 0) return -1;
      if (one.tag == tag && tokens_[static_cast<std::size_t>(one.number)] == token) {
        return one.number;
      }
    }
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t number = -1;
  };
  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  static uint64_t hash_of(View token) {
    if constexpr (std::is_same_v<Token, std::string>) {
      return std::hash<std::string_view>()(token);
    } else {
      uint64_t x = static_cast<uint64_t>(token) * 0x9e3779b97f4a7c15;
      return x ^ (x >> 32);
    }
  }

  std::vector<Token> tokens_;
  std::vector<Slot> slots_;  // a power of 2, at most half of them used
};

}  // namespace cohort::keras::internal
