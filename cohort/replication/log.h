// SPDX-License-Identifier: Apache-2.0
//
// The updates of a replicated server in their order, without those at the front that a snapshot
// has.
#pragma once

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
    return entries_[index - base_ - 1];
  }
  /// Of an entry from base() on.
  Epoch epoch_at(Index index) const { return index == base_ ? base_epoch_ : at(index).epoch; }
  /// Whether this very entry is, or was, in the log.
  bool has(Index index, Epoch epoch) const {
    return index < base_ || (index <= last() && epoch_at(index) == epoch);
  }

  void append(Entry entry) { entries_.push_back(std::move(entry)); }
  /// Takes back all behind `index`.
  void cut_behind(Index index) {
    while (last() > index && !entries_.empty()) entries_.pop_back();
  }
  /// Keeps at most `count` of those up to `index`.
  void forget(Index index, std::size_t count) {
    while (base_ + count < index) {
      base_epoch_ = entries_.front().epoch;
      entries_.pop_front();
      ++base_;
    }
  }
  /// Only what is behind this entry from here on.
  void begin_behind(Index index, Epoch epoch) {
    entries_.clear();
    base_ = index;
    base_epoch_ = epoch;
  }

 private:
  Index base_ = 0;
  Epoch base_epoch_ = 0;
  std::deque<Entry> entries_;
};

}  // namespace cohort::internal::replication
