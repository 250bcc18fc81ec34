// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job learn that one of them hangs, is stopped or is cut off, which sends no
// word: each holds a lease in the job's store and renews it on a thread of its own, whatever the
// program does meanwhile. Whose lease ends is out of the job, and all that wait for it get an
// error.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/base/write_guard.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/collectives/communicator.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::internal {

struct LivenessOptions {
  std::vector<std::string> tasks = {};      ///< "worker 1", by rank.
  std::vector<std::string> addresses = {};  ///< By rank.
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  std::chrono::milliseconds lease = std::chrono::seconds(10);
  /// For the store that rank 0 keeps where nobody has started one (COHORT_STORE).
  bool allow_insecure = false;
  /// The most that the store is waited for.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
};

/// A rank's part in it. Threads: thread-safe.
class Liveness {
 public:
  /// Of a task that has joined, whose lease is `client`'s. The communicator outlives it.
  Liveness(std::shared_ptr<StoreClient> client, Communicator& communicator,
           LivenessOptions options);
  /// Leaves the job in good order.
  ~Liveness();
  /// From here on the others are looked at: all have joined. The lease is renewed before, too.
  void look() { looks_.store(true); }
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void watch(const std::stop_token& stop);
  bool beat(const std::stop_token& stop, std::chrono::milliseconds left);
  bool look_at(const std::vector<StoreMember>& members);
  void give_up_store();
  void give_up(ErrorCode code, const std::string& text);
  std::string me() const;

  const std::shared_ptr<StoreClient> client_;
  Communicator& communicator_;
  const LivenessOptions options_;

  // Of the thread.
  Clock::time_point acknowledged_;  // when the last heartbeat was sent that was answered
  int64_t version_ = 0;
  std::vector<uint64_t> generations_;  // by rank; 0: not seen yet
  std::string last_error_;
  bool has_looked_ = false;
  bool is_over_ = false;          // somebody is out; the lease goes on, for what is still written
  bool store_has_ended_ = false;  // with its keeper, in good order

  std::atomic<bool> looks_{false};
  Mutex mutex_;
  std::condition_variable_any ended_;
  const WriteGuard files_;  // a rank that is too late publishes no file
  TaskThread thread_;       // last: it uses all the rest
};

/// A communicator whose ranks watch each other, all of whom call it: with a store of its own,
/// which rank 0 keeps, or the one that rank 0's COHORT_STORE names.
/// Blocks: until all have joined. Errors: as StoreServer, StoreClient and the communicator's; the
///         same on all ranks.
std::shared_ptr<Communicator> watch_over(std::unique_ptr<Communicator> communicator,
                                         const LivenessOptions& options);

}  // namespace cohort::internal
