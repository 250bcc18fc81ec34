// SPDX-License-Identifier: Apache-2.0
//
// Functions whose effects count once, as a coordinator sees them (cohort/replication/closures.h).
//
//   effects.open(id);                                     // scheduled
//   request.attempt = effects.begin(worker, id);          // sent to a worker
//   effects.settle(worker, answer, goes_on);              // or lose_worker(worker)
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/run_messages.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/replication/closures.h"

namespace cohort::internal::coordinator {

class ParameterServers;

/// A closure's number: above all of this process, and those of a chief before it, whose functions
/// may still run: what they send is refused. Threads: thread-safe.
uint64_t next_closure();
/// What an error says.
std::string text_of(const std::exception_ptr& error);

/// Threads: thread-safe; a worker's are those of one thread.
class ClosureEffects {
 public:
  /// Null: there are no servers, and so no such functions.
  explicit ClosureEffects(std::shared_ptr<ParameterServers> servers);

  bool has_servers() const { return servers_ != nullptr; }
  /// Ids ascend.
  void open(uint64_t id);
  /// The attempt's number.
  uint64_t begin(int worker, uint64_t id);
  /// What it runs will be run again.
  void lose_worker(int worker);
  /// It has failed, or is cancelled.
  void end(uint64_t id);
  /// Before anybody hears of the results: what the functions have prepared that have returned is
  /// done on all servers, whatever becomes of them. Those where a server could not do it are
  /// errors then, of a class that does not let them be run again.
  /// `goes_on`: whether a server that cannot be reached may still come back; waits a moment.
  /// Blocks: until all servers have done it, for a minute at most, and a call's time.
  void settle(int worker, RunAnswer& answer, const std::function<bool()>& goes_on);

 private:
  void tell(const std::vector<ClosureSettlement>& all, uint64_t floor,
            std::vector<std::exception_ptr>& errors, const std::function<bool()>& goes_on);

  const std::shared_ptr<ParameterServers> servers_;
  base::Mutex mutex_;
  replication::ClosureCommits commits_ COHORT_GUARDED_BY(mutex_);
  uint64_t told_ COHORT_GUARDED_BY(mutex_) = 1;  // the servers' floor
  // What each worker runs: the attempt of each.
  std::map<int, std::map<uint64_t, uint64_t>> running_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::coordinator
