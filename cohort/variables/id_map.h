// SPDX-License-Identifier: Apache-2.0
//
// Which row of a table of fixed size an id has, for ids that are any 64-bit number: who gets a row,
// and who loses it.
//
//   IdMap map({.capacity = 1000, .admit_after = 2, .when_full = WhenFull::kLeastRecentlyUsed});
//   const std::vector<int64_t> ids = {7, 1L << 40, 7};
//   map.begin_step();
//   map.see(ids);                         // counts them; those seen often enough get rows
//   const auto fresh = map.take_fresh();  // what these rows held was another id's
//   const int64_t row = map.find(7);      // or kNoRow
//
// A row that an id was seen with stays its row for the rest of the step: a gradient that is on its
// way belongs to nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/variables/when_full.h"

namespace cohort::internal::variables {

struct IdMapOptions {
  int64_t capacity = 0;     ///< Rows.
  int64_t admit_after = 1;  ///< An id gets a row when it is seen so many times.
  /// Ids without a row that are counted, at most; with one more the one seen the longest ago is
  /// forgotten. 0: as many as rows.
  int64_t candidates = 0;
  WhenFull when_full = WhenFull::kRefuse;
  std::optional<int64_t> steps_to_live = {};  ///< What was not seen in more steps is forgotten.
  bool operator==(const IdMapOptions&) const = default;
};

/// What a map knows, as plain data. Ids those seen the longest ago first.
struct IdMapState {
  struct Entry {
    int64_t id = 0;
    int64_t row = -1;  ///< Of a candidate none.
    int64_t count = 0;
    int64_t last = 0;  ///< The step in which it was seen.
  };
  int64_t step = 0;
  int64_t evicted = 0;
  int64_t refused = 0;
  std::vector<Entry> rows = {};
  std::vector<Entry> candidates = {};
};
/// As files have it, and again. Zeros may follow. Errors: DataLoss for other numbers.
std::vector<int64_t> numbers_of(const IdMapState& state);
IdMapState state_of(std::span<const int64_t> numbers);

/// Ids, each once in the order in which they first stand there, and how often they do.
struct CountedIds {
  std::vector<int64_t> ids = {};
  std::vector<int64_t> counts = {};
  std::vector<int64_t> position = {};  ///< ids[position[i]] is the one given as number i.
};
CountedIds counted(std::span<const int64_t> ids);

/// Order: the same calls give the same rows, on every machine.
/// Threads: thread-compatible.
class IdMap {
 public:
  static constexpr int64_t kNoRow = -1;
  struct Fresh {
    int64_t id = 0;
    int64_t row = 0;
  };

  /// Errors: InvalidArgument for numbers that make no sense.
  explicit IdMap(const IdMapOptions& options);

  /// From here on rows of the step before may be given to others; those whose time is over are
  /// free. Cost: what is forgotten.
  void begin_step();
  /// Each occurrence of an id is seen once. An id that gets a row has it in the whole call, which
  /// first sees those that have one. Cost: the ids.
  void see(std::span<const int64_t> ids);
  /// The same of ids that were seen so often.
  void see(std::span<const int64_t> ids, std::span<const int64_t> counts);
  int64_t find(int64_t id) const;
  /// The row stays its id's in this step and in the next one, without having been seen: somebody
  /// may have a gradient of it on its way. Is not saved.
  void hold(int64_t row) { rows_[static_cast<std::size_t>(row)].held = step_; }
  bool is_of_this_step(int64_t row) const { return !is_ranked_row(row); }
  /// Of the ids that got a row since the last call, in order. Order: ahead of the next
  /// begin_step(), so that none of them has lost it again.
  std::vector<Fresh> take_fresh() { return std::exchange(fresh_, {}); }

  const IdMapOptions& options() const { return options_; }
  int64_t step() const { return step_; }
  int64_t size() const { return static_cast<int64_t>(row_of_.size()); }
  int64_t candidates() const { return static_cast<int64_t>(candidates_.size()); }
  /// Rows that were taken from an id, so far; refusals for want of a row.
  int64_t evicted() const { return evicted_; }
  int64_t refused() const { return refused_; }
  /// Ids that have a row, those seen the longest ago first.
  std::vector<int64_t> ids() const;

  IdMapState state() const;
  /// All of it as numbers, and again. What is restored goes on as what was saved.
  std::vector<int64_t> save() const { return numbers_of(state()); }
  /// Numbers that save() gives; at most.
  int64_t saved_size() const;
  int64_t most_saved() const;
  /// Zeros may follow. Errors: DataLoss for numbers that save() cannot have given; InvalidArgument
  ///         if there are more rows than this map has. Nothing is changed then.
  void restore(std::span<const int64_t> saved) { restore(state_of(saved)); }
  void restore(const IdMapState& saved);

 private:
  struct Row {
    int64_t id = 0;
    int64_t count = 0;
    int64_t last = 0;   // step in which it was seen
    int64_t held = -2;  // step of hold()
    std::list<int64_t>::iterator place = {};
  };
  using Rank = std::tuple<int64_t, int64_t, int64_t>;  // count, last, row: the first one goes

  Rank rank(int64_t row) const;
  bool is_ranked() const { return options_.when_full == WhenFull::kLeastFrequentlyUsed; }
  /// Those of the step are not: they cannot go.
  bool is_ranked_row(int64_t row) const {
    return rows_[static_cast<std::size_t>(row)].last < step_;
  }
  bool is_held(int64_t row) const { return rows_[static_cast<std::size_t>(row)].held >= step_ - 1; }
  void touch(int64_t row, int64_t count);
  void see_candidate(int64_t id, int64_t count);
  void forget_oldest_candidate();
  int64_t victim() const;
  int64_t free_row();
  void evict(int64_t row);
  void place_row(int64_t row, const Row& what);
  void place_candidate(const Row& what);

  IdMapOptions options_;
  int64_t step_ = 0;
  int64_t evicted_ = 0;
  int64_t refused_ = 0;
  std::unordered_map<int64_t, int64_t> row_of_;
  std::vector<Row> rows_;     // up to the highest one that was ever used
  std::list<int64_t> order_;  // rows in use, the longest ago first
  std::set<Rank> ranks_;      // those of earlier steps, where the least frequently used one goes
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free_;  // of rows_
  std::unordered_map<int64_t, Row> candidates_;
  std::list<int64_t> candidate_order_;  // ids, the longest ago first
  std::vector<Fresh> fresh_;
};

}  // namespace cohort::internal::variables
