// SPDX-License-Identifier: Apache-2.0
//
// What clients of a real job pushed and read, and when, held against a register: a set to which
// each push adds its own number, and of which a read gives all. For tests.
//
//   PushHistory history;
//   history.push({.begun = 1, .ended = 4, .number = 0});
//   history.read({.begun = 5, .ended = 7, .seen = "100"});   // of each number how often it is
//   there EXPECT_EQ(history.first_violation(), "");
//
// There is an order that explains all answers if, and only if:
//  - no push counts twice;
//  - a read has each push that was over when it began, and none that began when it was over;
//  - of two reads one has all that the other has: the later one, where one was over when the other
//    began;
//  - a read that has a push has each one that was over when that one began.
// So pushes are told apart by the first read that has them, and those between two such reads are in
// the order of their times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/strings.h"

namespace cohort::testing {

/// Times: of one clock for all clients.
class PushHistory {
 public:
  struct Push {
    int64_t begun = 0;
    int64_t ended = 0;
    std::size_t number = 0;
  };
  struct Read {
    int64_t begun = 0;
    int64_t ended = 0;
    std::string seen = {};  ///< A digit for each number: how often it was pushed.
  };
  void push(Push push) { pushes_.push_back(push); }
  void read(Read read) { reads_.push_back(std::move(read)); }
  std::size_t pushes() const { return pushes_.size(); }
  std::size_t reads() const { return reads_.size(); }

  /// In words; empty: a register would have answered so.
  std::string first_violation() const {
    for (const Read& read : reads_) {
      if (std::string wrong = wrong_alone(read); !wrong.empty()) return wrong;
    }
    // By how much they have, and what began first where that is the same: each has all of the one
    // before.
    std::vector<const Read*> order;
    for (const Read& read : reads_) order.push_back(&read);
    std::stable_sort(order.begin(), order.end(), [](const Read* a, const Read* b) {
      return std::pair(size_of(*a), a->begun) < std::pair(size_of(*b), b->begun);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Read& less = *order[i - 1];
      const Read& more = *order[i];
      if (!has_all(more, less)) return str_cat(name_of(more), " and ", name_of(less), " disagree");
    }
    // Whoever has more and was over: the least of those behind has to begin before it ended.
    int64_t first_end = INT64_MAX;
    for (std::size_t i = order.size(); i > 0;) {
      std::size_t first = i - 1;  // of those that have as much
      while (first > 0 && size_of(*order[first - 1]) == size_of(*order[i - 1])) --first;
      for (std::size_t k = first; k < i; ++k) {
        if (order[k]->begun > first_end) return str_cat(name_of(*order[k]), " lost a push");
      }
      for (std::size_t k = first; k < i; ++k) first_end = std::min(first_end, order[k]->ended);
      i = first;
    }
    return {};
  }

 private:
  static std::size_t size_of(const Read& read) {
    return read.seen.size() -
           static_cast<std::size_t>(std::count(read.seen.begin(), read.seen.end(), '0'));
  }
  static bool has(const Read& read, std::size_t number) { return read.seen.at(number) != '0'; }
  static bool has_all(const Read& more, const Read& less) {
    for (std::size_t i = 0; i < less.seen.size(); ++i) {
      if (has(less, i) && !has(more, i)) return false;
    }
    return true;
  }
  static std::string name_of(const Read& read) {
    return str_cat("the read from ", read.begun, " to ", read.ended);
  }
  std::string wrong_alone(const Read& read) const {
    int64_t last_begun = INT64_MIN;  // of those that it has
    for (const Push& push : pushes_) {
      if (read.seen.at(push.number) > '1') return str_cat("push ", push.number, " counts twice");
      if (!has(read, push.number)) continue;
      last_begun = std::max(last_begun, push.begun);
      if (push.begun > read.ended)
        return str_cat(name_of(read), " has push ", push.number, " early");
    }
    for (const Push& push : pushes_) {
      if (has(read, push.number)) continue;
      if (push.ended < read.begun) {
        return str_cat(name_of(read), " has not got push ", push.number, ", over at ", push.ended);
      }
      if (push.ended < last_begun) {
        return str_cat(name_of(read), " has a later push, but not push ", push.number);
      }
    }
    return {};
  }

  std::vector<Push> pushes_;
  std::vector<Read> reads_;
};

/// Of each register what stands in the lines that history_program has written.
inline std::vector<PushHistory> histories_in(const std::string& text, std::size_t registers) {
  std::vector<PushHistory> out(registers);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    std::size_t which = 0;
    int64_t begun = 0;
    int64_t ended = 0;
    std::string rest;
    if (!(words >> kind >> which >> begun >> ended >> rest) || which >= registers) continue;
    if (kind == "pushed") {
      out[which].push({.begun = begun, .ended = ended, .number = std::stoul(rest)});
    } else if (kind == "read") {
      out[which].read({.begun = begun, .ended = ended, .seen = rest});
    }
  }
  return out;
}

}  // namespace cohort::testing
