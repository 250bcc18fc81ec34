// SPDX-License-Identifier: Apache-2.0
//
// Functions whose effects count once, as a coordinator sees them (cohort/replication/closures.h).
//
//   const uint64_t id = effects.open();                   // scheduled
//   request.attempt = effects.begin(worker, id);          // sent to a worker
//   effects.settle(worker, answer, goes_on);              // or lose_worker(worker)
//   effects.end(id);
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/internal/journal.h"
#include "cohort/coordinator/internal/run_messages.h"
#include "cohort/coordinator/parameters/transaction.h"
#include "cohort/replication/closures.h"

namespace cohort::internal::coordinator {

class ParameterServers;

/// What a coordinator before this one has decided is done, and all else that it has left on the
/// servers is refused. Errors: as ParameterServers::settle.
void settle_decided(Journal& journal, ParameterServers& servers);
/// What an error says.
std::string text_of(const std::exception_ptr& error);

/// Threads: thread-safe; a worker's are those of one thread.
class ClosureEffects {
 public:
  /// Null: there are no servers, and so no such functions.
  explicit ClosureEffects(std::shared_ptr<ParameterServers> servers,
                          std::shared_ptr<Journal> journal = {});

  bool has_servers() const { return servers_ != nullptr; }
  /// The program goes on, and has not ended: servers hear of what it has let go before, and what
  /// they all have done, but the journal could not take, as where the disk was full, is written
  /// down if it can be by now. settle() tries that, too.
  void go_on();
  /// A function's number, from here until end(). Behind has_servers(). `key`: what a journal has
  /// it by.
  uint64_t open(JournalKey key = {});
  /// The attempt's number.
  uint64_t begin(int worker, uint64_t id);
  /// What it runs will be run again.
  void lose_worker(int worker);
  /// Its result is there, or it has failed.
  void end(uint64_t id);
  /// The same of one that may run or be settled. Gives `why`, or an error that says that servers
  /// may have done what it has changed, or may do so yet.
  std::exception_ptr cancel(uint64_t id, const std::exception_ptr& why);
  /// Before anybody hears of the results: what the functions have prepared that have returned is
  /// done on all servers, whatever becomes of them. Those where a server could not do it are
  /// errors then, of a class that does not let them be run again.
  /// `goes_on`: whether a server that cannot be reached may still come back; waits a moment.
  /// Blocks: until all servers have done it, for a minute at most, and a call's time.
  void settle(int worker, RunAnswer& answer, const std::function<bool()>& goes_on);

 private:
  void retry_ends();
  /// Errors: as Journal.
  void write_down(const std::vector<ClosureSettlement>& all, const std::vector<JournalKey>& keys,
                  const std::vector<CallAnswer*>& answers);
  /// Whether it is over, for servers too. `error`: where it is not.
  bool write_end(uint64_t closure, bool is_told, std::exception_ptr& error);
  /// False: a server could not be reached, which may come back and does not know of it.
  bool tell(const std::vector<ClosureSettlement>& all, uint64_t floor,
            std::vector<std::exception_ptr>& errors, const std::function<bool()>& goes_on);

  const std::shared_ptr<ParameterServers> servers_;
  const std::shared_ptr<Journal> journal_;
  base::Mutex mutex_;
  replication::ClosureCommits commits_ COHORT_GUARDED_BY(mutex_);
  uint64_t told_ COHORT_GUARDED_BY(mutex_) = 1;  // the servers' floor
  // What each worker runs: the attempt of each.
  std::map<int, std::map<uint64_t, uint64_t>> running_ COHORT_GUARDED_BY(mutex_);
  std::set<uint64_t> settled_ COHORT_GUARDED_BY(mutex_);  // decided, and over but for end()
  std::set<uint64_t> ended_ COHORT_GUARDED_BY(mutex_);    // the other way round
  // With what they have ended, where that could not be written down.
  std::map<uint64_t, std::exception_ptr> unwritten_ COHORT_GUARDED_BY(mutex_);
  // Who schedules does not wait for a full disk each time.
  std::chrono::steady_clock::time_point retries_at_ COHORT_GUARDED_BY(mutex_) = {};
  std::map<uint64_t, JournalKey> keys_ COHORT_GUARDED_BY(mutex_);  // of those that have an id
};

}  // namespace cohort::internal::coordinator
