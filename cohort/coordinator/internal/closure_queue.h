// SPDX-License-Identifier: Apache-2.0
//
// Which scheduled function runs when, and what becomes of it: a machine of states without threads,
// clocks or sockets, which a simulator runs through as well as the real thing.
//
//   ClosureQueue queue({.capacity = 1000});
//   queue.put(closure);
//   for (const ClosurePtr& each : queue.take(worker, 1)) ...   // send it to the worker
//   queue.end(worker, closure->id);                            // it has been run there
//
// An error stops everything: nothing is handed out any more; when what runs has come back, what
// waits is cancelled, and whoever asks next takes the error, with which it is over. A lost worker's
// functions go to the end of the queue. So every function is run at least once, or is cancelled.
// With a staleness bound a worker gets no step that is too far ahead of the slowest one's
// (step_clocks.h); no function is bound to a worker, so another one takes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/coordinator/internal/call_codec.h"
#include "cohort/coordinator/internal/journal_key.h"
#include "cohort/coordinator/internal/step_clocks.h"

namespace cohort::internal::coordinator {

class RemoteResult;

/// One scheduled call.
struct Closure {
  uint64_t id = 0;
  std::string function = {};
  EncodedValues arguments = {};
  std::vector<std::shared_ptr<const void>> kept = {};  ///< Until it has been run.
  std::shared_ptr<RemoteResult> result = {};
  bool counts_once = false;  ///< What it changes on servers.
  bool is_step = true;       ///< For the staleness bound.
  JournalKey key = {};       ///< Empty: it has no id.
};
using ClosurePtr = std::shared_ptr<Closure>;

/// One that will not be run (again). Without an error: because of another one's.
struct CancelledClosure {
  ClosurePtr closure = {};
  std::exception_ptr error = {};
};

/// Threads: thread-compatible.
class ClosureQueue {
 public:
  struct Options {
    std::size_t capacity = 256 * 1024;
    std::optional<int> staleness_bound = {};  ///< In steps; unset: none.
  };
  explicit ClosureQueue(Options options) : options_(options), clocks_(options.staleness_bound) {}

  bool is_full() const { return waiting_.size() >= options_.capacity; }
  bool has_error() const { return error_ != nullptr; }
  /// Whether the error may be taken: nothing runs any more, or nothing will ever again.
  bool is_error_ripe() const { return has_error() && (is_over_ || running_.empty()); }
  /// Whether it has failed for good.
  bool is_over() const { return is_over_; }
  /// Nothing waits and nothing runs.
  bool is_idle() const { return waiting_.empty() && running_.empty(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t running() const { return running_.size(); }
  /// Of them those on one worker. Cost: looks at all that run.
  std::size_t running_on(int worker) const {
    return static_cast<std::size_t>(
        std::count_if(running_.begin(), running_.end(),
                      [worker](const auto& each) { return each.second.worker == worker; }));
  }

  /// To the end. Errors: Internal with an error, or where it is full.
  void put(ClosurePtr closure);
  /// The worker is there (again), and asks for functions: others wait for it where there is a
  /// bound. One that takes without it joins with that.
  void join_worker(int worker) { clocks_.join(worker); }
  /// Whether take() would give the worker one.
  bool can_take(int worker) const {
    return !waiting_.empty() && !has_error() &&
           (!waiting_.front()->is_step || clocks_.may_begin(worker));
  }
  /// Whether what one worker ends may be what another one waits for.
  bool is_bounded() const { return clocks_.is_bounded(); }
  /// At most so many from the front, which from here on run on the worker; none with an error, and
  /// none beyond the bound.
  std::vector<ClosurePtr> take(int worker, std::size_t most);
  /// As many of them as travel together: until their arguments have so many bytes, and none behind
  /// one that counts once, which is done when its message is settled: the next one is to find it.
  std::vector<ClosurePtr> take_message(int worker, std::size_t most, std::size_t most_bytes);
  /// It has been run, or has thrown. Null: it does not run there (any more).
  ClosurePtr end(int worker, uint64_t id);
  /// The same for one that has thrown. The first error stays, later ones are dropped.
  ClosurePtr fail(int worker, uint64_t id, const std::exception_ptr& error);
  /// The worker has not begun it: to the front. Of several the last one first.
  void hand_back(int worker, uint64_t id);
  /// It could not be run there, for a reason that may pass: to the end.
  void put_back(int worker, uint64_t id);
  /// The worker is lost: what runs there goes to the end, and nobody waits for its clock.
  void lose_worker(int worker);
  /// Nothing can be run any more, now or later: all that waits and runs has this error.
  void fail_for_good(const std::exception_ptr& error);
  /// The ripe error, which is over with that, unless it is one for good.
  std::exception_ptr take_error();
  /// Those that were cancelled since the last call.
  std::vector<CancelledClosure> take_cancelled();

 private:
  struct Running {
    int worker = 0;
    ClosurePtr closure = {};
  };
  /// Takes it out of those that run; null where it does not run there.
  ClosurePtr leave(int worker, uint64_t id, bool has_run);
  /// Back to the queue's end, or cancelled with an error.
  void return_to_end(ClosurePtr closure);
  void settle();

  const Options options_;
  StepClocks clocks_;
  std::deque<ClosurePtr> waiting_;
  std::map<uint64_t, Running> running_;  // by the closure's id
  std::vector<CancelledClosure> cancelled_;
  std::exception_ptr error_;
  bool is_over_ = false;
};

}  // namespace cohort::internal::coordinator
