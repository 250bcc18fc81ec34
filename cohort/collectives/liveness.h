// SPDX-License-Identifier: Apache-2.0
//
// How the workers of a job learn that one of them hangs, is stopped or is cut off, which sends no
// word: each holds a lease in the job's store and renews it on a thread of its own, whatever the
// program does meanwhile. Whose lease ends is out of the job, and all that wait for it get an
// error. The store has the last word: a process that was stopped asks it before it gives anybody
// up, and before it publishes a file; a job of which all were stopped together goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/boot_clock.h"
#include "cohort/base/mutex.h"
#include "cohort/base/write_guard.h"
#include "cohort/cluster/store/store_server.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/stragglers.h"
#include "cohort/runtime/task_thread.h"

namespace cohort::internal::collectives {

struct LivenessOptions {
  std::vector<std::string> tasks = {};      ///< "worker 1", by rank.
  std::vector<std::string> addresses = {};  ///< By rank.
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  std::chrono::milliseconds lease = std::chrono::seconds(10);
  /// Who takes so many times as long for its part of a step as the others do is named in rank 0's
  /// log. 0: nobody is.
  double straggler_ratio = 2;
  /// For the store that rank 0 keeps where nobody has started one (COHORT_STORE).
  bool allow_insecure = false;
  /// Behind the names of tasks in a store that other strategies of the same processes use, too.
  std::string member_suffix = {};
  /// The most that the store is waited for.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(5);
};

/// Errors: InvalidArgument unless a lease is at least two heartbeats.
void check_leases(const LivenessOptions& options);

/// A rank's part in it. Threads: thread-safe.
class Liveness {
 public:
  /// Of a task that has joined, whose lease is `client`'s. The communicator outlives it.
  Liveness(std::shared_ptr<cluster::StoreClient> client, Communicator& communicator,
           LivenessOptions options);
  /// Leaves the job in good order.
  ~Liveness();
  /// From here on the others are looked at: all have joined. The lease is renewed before, too.
  void look() { looks_.store(true); }
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

 private:
  using Clock = base::BootClock;
  struct Patience;
  void watch(const std::stop_token& stop);
  bool beat(const std::stop_token& stop, Patience& patience);
  bool look_at(const std::vector<cluster::StoreMember>& members);
  void tell_lost(const cluster::StoreMember& member, int rank);
  void give_up_store();
  void give_up(ErrorCode code, const std::string& text);
  void note_out(const std::string& why);
  void look_for_stragglers();
  std::string report_of_others();
  void check_may_write();
  std::string me() const;

  const std::shared_ptr<cluster::StoreClient> client_;
  Communicator& communicator_;
  const LivenessOptions options_;

  // Of the thread.
  Clock::time_point acknowledged_;  // when the last heartbeat was sent that was answered
  int64_t version_ = 0;
  std::vector<uint64_t> generations_;  // by rank; 0: not seen yet
  std::string last_error_;
  Stragglers stragglers_;
  uint64_t looked_at_window_ = 0;  // of this rank's pace
  bool has_looked_ = false;
  bool is_over_ = false;  // somebody is out; the lease goes on, for what is still written

  std::atomic<bool> looks_{false};
  std::atomic<bool> store_has_ended_{false};  // with its keeper, in good order
  base::Mutex mutex_;
  std::condition_variable_any ended_;
  std::string why_out_ COHORT_GUARDED_BY(mutex_);  // of the job; empty: it is in
  const base::WriteGuard files_;                   // a rank that is too late publishes no file
  runtime::TaskThread thread_;                     // last: it uses all the rest
};

/// A communicator whose ranks watch each other, all of whom call it: with a store of its own,
/// which rank 0 keeps, or the one that rank 0's COHORT_STORE names; there each such communicator of
/// a process has keys and members of its own. In a child of this process it is left as it is.
/// Blocks: until all have joined. Errors: as StoreServer, StoreClient and the communicator's;
///         InvalidArgument for a COHORT_STORE beyond loopback without a token or TLS; the same on
///         all ranks.
std::shared_ptr<Communicator> watch_over(std::unique_ptr<Communicator> communicator,
                                         const LivenessOptions& options);

}  // namespace cohort::internal::collectives
