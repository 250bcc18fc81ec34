// SPDX-License-Identifier: Apache-2.0
//
// Whose turn it is among the datasets of an interleave, apart from who reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/data/pipeline/internal/threads/interleave_source.h"
#include "cohort/data/pipeline/internal/threads/ring.h"

namespace cohort::internal::data {

/// The open datasets in their turns, and behind them those that were opened in advance (futures).
/// Threads: thread-compatible, but for the stream of a busy source, which is its thread's.
class InterleaveTurns {
 public:
  using Source = InterleaveSource;
  using SourcePtr = std::unique_ptr<Source>;

  /// `ordered` false: who has nothing ready misses its turn.
  InterleaveTurns(int cycle_length, int64_t block_length, bool ordered);

  enum class Step {
    kElement,  ///< The current dataset has an item.
    kAgain,    ///< It is another one's turn now.
    kChanged,  ///< The same, and there is more to read or to open.
    kWait,     ///< The current one has to be read, or opened.
    kEnd,
  };
  /// One step towards the next element. `finished` is a dataset that is to be closed.
  /// Errors: what opening the dataset whose turn it is threw.
  Step step(SourcePtr& finished);
  /// Null: a dataset has to be opened.
  Source* current() const { return turns_[current_].get(); }
  /// After kElement.
  Source::Item take_item();
  /// An element of the current dataset was read.
  void count_element();
  /// Whether step would find anything but kWait.
  bool has_something() const;

  /// The next dataset, behind those that were opened before; null: there are no more.
  void add(SourcePtr source);

  struct Job {
    Source* source = nullptr;  ///< To read from.
    bool open = false;         ///< A new one.
    bool found() const { return source != nullptr || open; }
  };
  /// What the reader will wait for first. `ahead`: items for each dataset; `spare`: datasets that
  /// are opened before their turn is free.
  Job find_job(std::size_t ahead, std::size_t spare, bool can_open) const;
  /// Worth reading ahead of: half of what may be ahead is gone.
  static bool wants_items(const Source& source, std::size_t ahead);

  void save(StateWriter& out) const;
  void restore(StateReader& in, const std::function<SourcePtr(StateReader&)>& restore_one);

 private:
  void take_future();
  void free_turn(SourcePtr& turn);
  void advance();
  bool move_on();
  bool has_something(std::size_t turn) const;

  const int64_t block_length_;
  const bool ordered_;
  std::vector<SourcePtr> turns_;  ///< Null: free for the next.
  Ring<SourcePtr> futures_;       ///< Opened in advance.
  std::size_t current_ = 0;
  int64_t taken_ = 0;     ///< Of the current block.
  std::size_t open_ = 0;  ///< Turns that are not free.
  bool input_ended_ = false;
};

}  // namespace cohort::internal::data
