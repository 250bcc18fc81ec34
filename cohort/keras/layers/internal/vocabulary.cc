// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/vocabulary.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "cohort/base/check.h"

namespace cohort::keras::internal {
namespace {

std::string vocabulary_text(const std::string& token) { return token; }
std::string vocabulary_text(int64_t token) { return std::to_string(token); }

void read_vocabulary_token(std::string_view text, std::string& token) { token = text; }
void read_vocabulary_token(std::string_view text, int64_t& token) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), token);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  if (!whole) throw DataLoss(str_cat("[vocabulary] expected a whole number, got \"", text, "\""));
}

bool has_no_end_of_line(int64_t) { return true; }
bool has_no_end_of_line(const std::string& token) {
  constexpr std::string_view kOneByte = "\n\v\f\r\x1c\x1d\x1e";
  if (token.find_first_of(kOneByte) != std::string::npos) return false;
  for (const char* const end : {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"}) {
    if (token.find(end) != std::string::npos) return false;
  }
  return true;
}

void append_bytes(std::string& out, const void* data, std::size_t size) {
  out.append(static_cast<const char*>(data), size);
}
void append_count(std::string& out, std::size_t count) {
  const uint64_t wide = count;
  append_bytes(out, &wide, sizeof wide);
}

// Reads what a checkpoint has of a vocabulary.
class VocabularyBytes {
 public:
  explicit VocabularyBytes(std::string_view bytes) : rest_(bytes) {}
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) throw DataLoss("[restore] expected a vocabulary, got fewer bytes");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::size_t count() {
    uint64_t count = 0;
    std::memcpy(&count, take(sizeof count).data(), sizeof count);
    return count;
  }

 private:
  std::string_view rest_;
};

}  // namespace

template <class Token>
std::string bytes_of(const Vocabulary<Token>& vocabulary) {
  if (!vocabulary.is_known) return {};
  std::string bytes;
  append_count(bytes, vocabulary.table.tokens().size());
  for (const Token& token : vocabulary.table.tokens()) {
    const std::string text = vocabulary_text(token);
    append_count(bytes, text.size());
    bytes += text;
  }
  append_count(bytes, vocabulary.idf_weights.size());
  append_bytes(bytes, vocabulary.idf_weights.data(), vocabulary.idf_weights.size() * sizeof(float));
  return bytes;
}

template <class Token>
Vocabulary<Token> vocabulary_of(std::string_view all) {
  Vocabulary<Token> vocabulary;
  if (all.empty()) return vocabulary;
  VocabularyBytes bytes(all);
  std::vector<Token> tokens;
  for (std::size_t left = bytes.count(); left > 0; --left) {
    Token token{};
    read_vocabulary_token(bytes.take(bytes.count()), token);
    tokens.push_back(std::move(token));
  }
  vocabulary.table = TokenTable<Token>(std::move(tokens));
  const std::size_t weights = bytes.count();
  // A count beyond the bytes is refused before the product can wrap.
  const std::string_view of_weights =
      bytes.take(weights > all.size() ? weights : weights * sizeof(float));
  vocabulary.idf_weights.resize(weights);
  if (weights > 0) {
    std::memcpy(vocabulary.idf_weights.data(), of_weights.data(), of_weights.size());
  }
  vocabulary.is_known = true;
  return vocabulary;
}

template <class Token>
bool fit_lines(const std::vector<Token>& tokens) {
  const bool seen_last = tokens.empty() || !vocabulary_text(tokens.back()).empty();
  return seen_last && std::all_of(tokens.begin(), tokens.end(),
                                  [](const Token& token) { return has_no_end_of_line(token); });
}

template <class Token>
std::string lines_of(const std::vector<Token>& tokens) {
  std::string text;
  const char* between = "";
  for (const Token& token : tokens) {
    text += between + vocabulary_text(token);
    between = "\n";
  }
  return text;
}

template <class Token>
std::vector<Token> tokens_of_lines(std::string_view text) {
  std::string_view rest = text;
  while (rest.ends_with('\n')) rest.remove_suffix(1);
  std::vector<Token> tokens;
  bool more = !text.empty();
  while (more) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    Token token{};
    read_vocabulary_token(line, token);
    tokens.push_back(std::move(token));
    more = end != std::string_view::npos;
    if (more) rest.remove_prefix(end + 1);
  }
  return tokens;
}

template std::string bytes_of(const Vocabulary<std::string>&);
template std::string bytes_of(const Vocabulary<int64_t>&);
template Vocabulary<std::string> vocabulary_of(std::string_view);
template Vocabulary<int64_t> vocabulary_of(std::string_view);
template bool fit_lines(const std::vector<std::string>&);
template bool fit_lines(const std::vector<int64_t>&);
template std::string lines_of(const std::vector<std::string>&);
template std::string lines_of(const std::vector<int64_t>&);
template std::vector<std::string> tokens_of_lines(std::string_view);
template std::vector<int64_t> tokens_of_lines(std::string_view);

}  // namespace cohort::keras::internal
