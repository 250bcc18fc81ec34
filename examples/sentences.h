// SPDX-License-Identifier: Apache-2.0
//
// Sentences about a film, and about something else beside it: which words praise and whom they are
// about is a matter of their order.
//
//   1  "well the film was not dull and sadly the popcorn was bad"
//   0  "the weather was great but honestly the film was not good"
#pragma once

#include <map>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "cohort/cohort.h"

namespace examples {

/// A sentence, and whether it praises the film.
inline std::pair<std::string, bool> sentence(std::mt19937_64& random) {
  const auto any = [&](const std::vector<std::string>& words) {
    return words[random() % words.size()];
  };
  const auto clause = [&](const std::string& subject, bool praise) {
    const bool negated = random() % 2 == 0;
    std::string text = any({"", "", "well ", "sadly ", "honestly ", "oh my "});
    text += "the " + subject + any({" was ", " is "}) + (negated ? "not " : "");
    return text +
           (praise != negated ? any({"good", "great", "fine"}) : any({"bad", "dull", "poor"}));
  };
  const bool praise = random() % 2 == 0;
  const std::string film = clause("film", praise);
  if (random() % 4 == 0) return {film, praise};
  const std::string other = clause(any({"popcorn", "weather", "seat"}), random() % 2 == 0);
  const std::string link = any({" and ", " but "});
  return {random() % 2 == 0 ? film + link + other : other + link + film, praise};
}

/// Sentences as numbers of words, which it gives out as it meets them: 1, 2, ...; 0 is padding.
class Corpus {
 public:
  explicit Corpus(uint64_t seed) : random_(seed) {}

  /// Rows (x int64[words], y float32[1]) of unlike lengths.
  cohort::Dataset sentences(int64_t count) {
    std::vector<std::tuple<cohort::Tensor, cohort::Tensor>> rows;
    for (int64_t i = 0; i < count; ++i) {
      const auto [text, praise] = sentence(random_);
      rows.emplace_back(numbers(text), cohort::tensor({praise ? 1.0 : 0.0}));
    }
    return cohort::Dataset::from_range(
        rows, cohort::ElementSpec::tuple({cohort::TensorSpec{{cohort::kUnknownDim}, cohort::kInt64},
                                          cohort::TensorSpec{{1}, cohort::kFloat32}}));
  }

  cohort::Tensor numbers(const std::string& text) {
    std::istringstream in(text);
    std::vector<int64_t> out;
    for (std::string word; in >> word;) {
      out.push_back(
          words_.try_emplace(word, static_cast<int64_t>(words_.size()) + 1).first->second);
    }
    return cohort::from_vector(out, {static_cast<int64_t>(out.size())});
  }

  /// With the padding.
  int64_t vocabulary() const { return static_cast<int64_t>(words_.size()) + 1; }

 private:
  std::mt19937_64 random_;
  std::map<std::string, int64_t> words_;
};

}  // namespace examples
