// SPDX-License-Identifier: Apache-2.0
//
// What a lookup layer knows, how it learns it, and how files keep it. Token: std::string, int64_t.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/keras/layers/internal/token_table.h"

namespace cohort::keras::internal {

template <class Token>
struct Vocabulary {
  TokenTable<Token> table;  // without the special tokens
  std::vector<float> idf_weights;
  bool is_known = false;
  bool is_replaced = false;  // it was set in the place of one that the layer was given
};

struct TokenHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
  std::size_t operator()(int64_t number) const { return std::hash<int64_t>()(number); }
};

template <class Token>
struct TokenCounts {
  struct Count {
    int64_t times = 0, documents = 0, last_document = -1;
  };
  std::unordered_map<Token, Count, TokenHash, std::equal_to<>> of;
  int64_t documents = 0;

  void add(typename TokenTable<Token>::View token) {
    auto found = of.find(token);
    if (found == of.end()) found = of.emplace(Token(token), Count()).first;
    Count& count = found->second;
    ++count.times;
    if (count.last_document != documents) ++count.documents;
    count.last_document = documents;
  }
  void forget(const std::optional<Token>& token) {
    if (token) of.erase(*token);
  }
};

/// As bytes for checkpoints; empty: nothing is known. Errors, of the other way: DataLoss.
template <class Token>
std::string bytes_of(const Vocabulary<Token>& vocabulary);
template <class Token>
Vocabulary<Token> vocabulary_of(std::string_view bytes);

/// False of what Keras would read otherwise from a file of lines: it takes every character that
/// ends a line somewhere (U+2028, say) for an end, and drops empty lines at the end.
template <class Token>
bool fit_lines(const std::vector<Token>& tokens);

/// Keras's file of a vocabulary: a token in each line, no end of the last one. Of tokens that
/// fit_lines(). Errors, of the other way: DataLoss for a line that is no number.
template <class Token>
std::string lines_of(const std::vector<Token>& tokens);
template <class Token>
std::vector<Token> tokens_of_lines(std::string_view text);

}  // namespace cohort::keras::internal
