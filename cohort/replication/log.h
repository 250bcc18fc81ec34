// SPDX-License-Identifier: Apache-2.0
//
// The updates of a replicated server in their order, without those at the front that a snapshot
// has, and how much memory they take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/replication/messages.h"

namespace cohort::internal::replication {

/// Threads: thread-compatible.
class Log {
 public:
  /// The last entry that is not kept any more; 0: none.
  Index base() const { return base_; }
  Index last() const { return base_ + entries_.size(); }
  const Entry& at(Index index) const {
    COHORT_CHECK(index > base_ && index <= last(), "entry ", index, " of a log of ", last());
    return entries_[index - base_ - 1].entry;
  }
  /// Of an entry from base() on.
  Epoch epoch_at(Index index) const { return index == base_ ? base_epoch_ : at(index).epoch; }
  /// Whether this very entry is, or was, in the log.
  bool has(Index index, Epoch epoch) const {
    return index < base_ || (index <= last() && epoch_at(index) == epoch);
  }
  /// Of all entries.
  std::size_t bytes() const { return bytes_between(base_, last()); }
  /// Of those behind `first` up to `last`; of those that are not kept: 0.
  std::size_t bytes_between(Index first, Index last) const {
    first = std::max(first, base_);
    return first >= last ? 0 : static_cast<std::size_t>(end_of(last) - end_of(first));
  }

  void append(Entry entry) {
    const uint64_t size = sizeof(Entry) + entry.command.bytes.size();
    entries_.push_back({std::move(entry), end_of(last()) + size});
  }
  /// Takes back all behind `index`.
  void cut_behind(Index index) {
    while (last() > index && !entries_.empty()) entries_.pop_back();
  }
  /// Of those up to `index` keeps at most `count`, and fewer where all take more than `most_bytes`.
  void forget(Index index, std::size_t count, std::size_t most_bytes) {
    while (base_ < index && (base_ + count < index || bytes() > most_bytes)) {
      base_epoch_ = entries_.front().entry.epoch;
      base_end_ = entries_.front().end;
      entries_.pop_front();
      ++base_;
    }
  }
  /// Only what is behind this entry from here on.
  void begin_behind(Index index, Epoch epoch) {
    base_end_ = end_of(last());
    entries_.clear();
    base_ = index;
    base_epoch_ = epoch;
  }

 private:
  struct Kept {
    Entry entry;
    uint64_t end = 0;  // bytes of all up to this one
  };
  uint64_t end_of(Index index) const {
    return index == base_ ? base_end_ : entries_[index - base_ - 1].end;
  }

  Index base_ = 0;
  Epoch base_epoch_ = 0;
  uint64_t base_end_ = 0;
  std::deque<Kept> entries_;
};

}  // namespace cohort::internal::replication
