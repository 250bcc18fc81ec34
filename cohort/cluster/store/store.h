// SPDX-License-Identifier: Apache-2.0
//
// What the tasks of a job agree on beside their tensors: keys of which the first writer wins,
// counters, barriers, and who lives.
//
//   Store& store = *communicator.store();
//   const std::string step = store.insert("preemption/step", "412");   // the same on every task
//   store.barrier("preemption/saved", workers, std::chrono::seconds(30));
//
// The store lives in one process (store_server.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/cluster/store/messages.h"

namespace cohort::internal::cluster {

/// What all members throw beside their own: Unavailable and DeadlineExceeded that name the store
/// where it does not answer; Unauthenticated from a store of another job; FailedPrecondition,
/// naming this task, where it was given up as dead or another process has taken its place: nothing
/// that it writes counts any more.
/// Threads: thread-safe.
class Store {
 public:
  /// How one is asked: throws the reply's error. Blocks: for the answer.
  using Ask = std::function<StoreReply(const StoreRequest&)>;
  explicit Store(Ask ask) : ask_(std::move(ask)) {}

  /// Blocks: until somebody has set the key. Errors: DeadlineExceeded that names it.
  std::string get(const std::string& key, std::chrono::milliseconds wait);
  std::optional<std::string> find(const std::string& key);
  void set(const std::string& key, const std::string& value);
  /// The first writer wins: sets a key that is not there. The value that stands now.
  std::string insert(const std::string& key, const std::string& value);
  /// Of a counter, 0 at first; the sum. Errors: FailedPrecondition for a key with another value.
  int64_t add(const std::string& key, int64_t number);
  /// False if it was not there.
  bool erase(const std::string& key);

  /// Blocks: until `tasks` of them have called it with this name.
  /// Errors: DeadlineExceeded that names who has come and who has not; Unavailable, naming it, as
  ///         soon as a task has died without which there are too few; FailedPrecondition if they do
  ///         not say the same `tasks`.
  void barrier(const std::string& name, int tasks, std::chrono::milliseconds wait);
  /// The same, at which each brings a value and gets those of all, by task.
  std::map<std::string, std::string> meet(const std::string& name, int tasks,
                                          const std::string& value, std::chrono::milliseconds wait);
  /// Who has joined, by name.
  std::vector<StoreMember> members();

  /// The same one, in which all keys and barriers begin with `prefix`, which callers do not see.
  static std::shared_ptr<Store> under(const std::string& prefix,
                                      const std::shared_ptr<Store>& whole);

  /// For what has no member of its own.
  StoreReply ask(const StoreRequest& request) { return ask_(request); }

 private:
  const Ask ask_;
};

}  // namespace cohort::internal::cluster
