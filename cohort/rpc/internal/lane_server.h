// SPDX-License-Identifier: Apache-2.0
//
// The server's end of lanes (lane.h): one thread lets clients in and sees them go, and each lane
// has two that run its calls, the small ones and the large ones, one after the other.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/rpc/claims.h"
#include "cohort/rpc/lane.h"
#include "cohort/rpc/server.h"

namespace cohort::internal::rpc {

class ServerLane;

/// Threads: thread-safe.
class LaneServer {
 public:
  struct Method {
    std::string name = {};
    const RpcHandler* handler = nullptr;
  };
  /// What the arguments point to outlives it. Errors: Error where the system gives no socket.
  LaneServer(std::vector<Method> methods, ClaimsVerifier* verifier);
  /// Calls under way fail by Unavailable. Blocks: until no handler runs any more, whatever clients
  /// do or do not.
  ~LaneServer();
  LaneServer(const LaneServer&) = delete;
  LaneServer& operator=(const LaneServer&) = delete;

  LaneOffer offer() const;
  /// That are open.
  std::size_t lanes() const;

 private:
  struct Guest {
    LaneSocket socket;
    std::chrono::steady_clock::time_point until;  // by when it has proved itself
    std::shared_ptr<ServerLane> lane = {};
  };
  void run();
  void let_in() COHORT_REQUIRES(mutex_);
  // False: it has ended.
  bool hear_if(bool has_come, Guest& guest) COHORT_REQUIRES(mutex_);
  bool hear(Guest& guest) COHORT_REQUIRES(mutex_);

  const std::vector<Method> methods_;
  ClaimsVerifier* const verifier_;
  std::string name_;
  const LaneSocket listener_;
  LaneSocket wakes_;  // a pair, of which a byte ends the thread
  LaneSocket woken_;
  mutable base::Mutex mutex_;
  std::list<Guest> guests_ COHORT_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<ServerLane>> ending_;  // whose handlers may run
  std::thread thread_;
};

}  // namespace cohort::internal::rpc
