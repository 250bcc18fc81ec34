// SPDX-License-Identifier: Apache-2.0
//
// Variables and slots that end: servers are told by a thread of its own, so nobody waits for them,
// but what comes behind does. Where servers are groups, they are told again until another one leads
// a group whose primary has died.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/call_numbers.h"

namespace cohort::internal::coordinator {

/// What is told may be told twice. Threads: thread-safe.
class Drops {
 public:
  struct Options {
    std::chrono::milliseconds one_try = std::chrono::seconds(3);
    std::chrono::milliseconds all_tries = {};  ///< Less than one: there is one.
  };
  struct One {
    std::size_t server = 0;
    const char* method = nullptr;
    rpc::Payload request = {};
    std::string key = {};     ///< Of what it is to be remembered by, should it be given up.
    uint64_t generation = 1;  ///< Which of this key.
  };
  /// `servers` outlive it.
  Drops(const std::vector<std::unique_ptr<CallNumbers>>& servers, Options options);
  /// Blocks: for one try at the most.
  ~Drops();
  Drops(const Drops&) = delete;
  Drops& operator=(const Drops&) = delete;

  void add(One one);
  /// From here on what is added is not told before release() or wait(), nor when this object ends:
  /// who is killed on its way out would leave servers without variables, which say all the same
  /// that their state is the one in which these began.
  void hold();
  /// What has been held so far is told. Cost: one load where there is none.
  void release();
  /// Blocks: until all have been told, or given up, also what was held.
  void wait();
  /// Nothing is told twice from here on, and what is held never. Blocks: as wait(), for one try at
  /// the most.
  void wait_to_end();
  /// The last generation of the key of which a server may not have heard that it has ended; 0:
  /// none.
  uint64_t given_up(const std::string& key) const;
  void forget(const std::string& key);

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void wait_for_told();
  std::vector<One> tell(const std::vector<One>& all);
  bool retries(Clock::time_point until);

  const std::vector<std::unique_ptr<CallNumbers>>& servers_;
  const Options options_;
  mutable base::Mutex mutex_;
  std::condition_variable_any changed_;
  bool ends_ COHORT_GUARDED_BY(mutex_) = false;
  bool is_busy_ COHORT_GUARDED_BY(mutex_) = false;
  bool holds_ COHORT_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_held_{false};
  std::vector<One> held_ COHORT_GUARDED_BY(mutex_);
  std::vector<One> added_ COHORT_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> given_up_ COHORT_GUARDED_BY(mutex_);
  std::thread thread_ COHORT_GUARDED_BY(mutex_);  // from the first one on
};

}  // namespace cohort::internal::coordinator
