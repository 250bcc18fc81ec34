// SPDX-License-Identifier: Apache-2.0
//
// What clients asked and were told, and when, held against what a single register would have told
// them. The register is the list of all updates: a read shows exactly which ones came before it, so
// whether there is an order that explains all answers is seen by looking once. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cohort/base/strings.h"

namespace cohort::internal::replication {

inline constexpr std::size_t kUpdateBytes = sizeof(uint32_t);

/// Threads: thread-compatible.
class History {
 public:
  std::size_t begin_update(int64_t now) { return begin(now, /*is_update=*/true); }
  std::size_t begin_read(int64_t now) { return begin(now, /*is_update=*/false); }
  /// What the update adds to the list.
  static std::string bytes_of(std::size_t operation) {
    const auto number = static_cast<uint32_t>(operation);
    std::string out(kUpdateBytes, '\0');
    std::memcpy(out.data(), &number, kUpdateBytes);
    return out;
  }
  /// A read's list; an update's place in it, from 1.
  void end(std::size_t operation, int64_t now, const std::string& result) {
    operations_[operation].ended = now;
    operations_[operation].result = result;
  }

  int acknowledged_updates() const { return count(true); }
  int answered_reads() const { return count(false); }

  /// In words; empty: a single register would have answered so. is_whole: the last read, which
  /// began when all else was over, has been answered.
  std::string first_violation(bool is_whole) const {
    const std::string list = longest();
    std::map<std::size_t, std::size_t> places;  // by update, from 1
    for (std::size_t i = 0; i < list.size() / kUpdateBytes; ++i) {
      uint32_t number = 0;
      std::memcpy(&number, list.data() + i * kUpdateBytes, kUpdateBytes);
      if (!places.emplace(number, i + 1).second) return str_cat("update ", number, " counts twice");
    }
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& o = operations_[i];
      if (o.ended < 0) continue;
      if (!o.is_update && list.compare(0, o.result.size(), o.result) != 0) {
        return str_cat("read ", i, " saw updates in another order than others, or a lost one");
      }
      if (!o.is_update) continue;
      const auto place = places.find(i);
      if (place == places.end() && (is_whole || std::stoul(o.result) <= places.size())) {
        return str_cat("update ", i, ", which was acknowledged, is lost");
      }
      if (place != places.end() && std::stoul(o.result) != place->second) {
        return str_cat("update ", i, " is at ", place->second, ", but was told ", o.result);
      }
    }
    return wrong_order(places);
  }

 private:
  struct Operation {
    bool is_update = false;
    int64_t begun = 0;
    int64_t ended = -1;
    std::string result = {};
  };
  std::size_t begin(int64_t now, bool is_update) {
    operations_.push_back({.is_update = is_update, .begun = now});
    return operations_.size() - 1;
  }
  int count(bool is_update) const {
    return static_cast<int>(std::count_if(
        operations_.begin(), operations_.end(),
        [&](const Operation& o) { return o.is_update == is_update && o.ended >= 0; }));
  }
  std::string longest() const {
    std::string out;
    for (const Operation& o : operations_) {
      if (!o.is_update && o.result.size() > out.size()) out = o.result;
    }
    return out;
  }

  // An operation that began when another one was over comes behind it: behind the one that is
  // furthest of all that were over.
  std::string wrong_order(const std::map<std::size_t, std::size_t>& places) const {
    struct Over {
      int64_t ended;
      std::size_t least;  // updates that it has seen, or is one of
      std::size_t operation;
    };
    std::vector<Over> over;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& o = operations_[i];
      if (o.ended < 0) continue;
      over.push_back(
          {o.ended, o.is_update ? std::stoul(o.result) : o.result.size() / kUpdateBytes, i});
    }
    const auto by_end = [](const Over& a, const Over& b) { return a.ended < b.ended; };
    std::sort(over.begin(), over.end(), by_end);
    for (std::size_t i = 1; i < over.size(); ++i) {
      if (over[i - 1].least <= over[i].least) continue;
      over[i].least = over[i - 1].least;
      over[i].operation = over[i - 1].operation;
    }
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const Operation& later = operations_[i];
      const auto place = places.find(i);
      if (later.is_update ? place == places.end() : later.ended < 0) continue;
      const std::size_t at = later.is_update ? place->second : later.result.size() / kUpdateBytes;
      const auto behind =
          std::lower_bound(over.begin(), over.end(), Over{later.begun, 0, 0}, by_end);
      if (behind != over.begin()) {
        const Over& last = *(behind - 1);
        if (at < last.least + (later.is_update ? 1 : 0)) {
          return str_cat(later.is_update ? "update " : "read ", i, " does not see operation ",
                         last.operation, ", which was over when it began");
        }
      }
      if (!later.is_update && sees_the_future(later)) {
        return str_cat("read ", i, " saw an update that nobody had asked for");
      }
    }
    return {};
  }
  bool sees_the_future(const Operation& read) const {
    for (std::size_t i = 0; i < read.result.size() / kUpdateBytes; ++i) {
      uint32_t number = 0;
      std::memcpy(&number, read.result.data() + i * kUpdateBytes, kUpdateBytes);
      if (number >= operations_.size() || operations_[number].begun > read.ended) return true;
    }
    return false;
  }

  std::vector<Operation> operations_;
};

}  // namespace cohort::internal::replication
