// SPDX-License-Identifier: Apache-2.0
//
// What a parameter server remembers of the calls that change something, so that one that is sent
// again, because its answer was lost, is not done again:
//
//   const bool is_new = memory.begin(number, answer);   // else `answer` gets the first one's
//   if (is_new) memory.end(number, do_it());
//
// Clients number their calls and say for which of them they still wait, so few answers are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/rpc/client.h"

namespace cohort::internal::coordinator {

/// The most of one client's calls that a server remembers, the oldest unanswered one and all behind
/// it. Clients begin no call beyond them.
inline constexpr uint64_t kCallWindow = 4096;

/// Threads: thread-safe.
class CallMemory {
 public:
  using Answer = std::function<void(const rpc::RpcResult&)>;

  /// `first`: number of the first client; a server that has started anew begins with another one.
  explicit CallMemory(uint64_t first, std::size_t most_clients = 4096)
      : most_clients_(most_clients), next_client_(first) {}

  /// A new client's number. The client that was not heard of for longest is forgotten for it if
  /// there are too many. Errors: FailedPrecondition if all of them have calls that run.
  uint64_t open();
  void close(uint64_t client);
  std::size_t clients() const;

  /// True: the call is new; who asks does it, and then says end(). Else it is done already, or
  /// runs. `answer` is called once, now or by end(), with what the first one of this number gave.
  /// Errors: FailedPrecondition for a client that this server does not know (any more), for a call
  ///         that its client has given up, and for one beyond the window; it is not done then.
  bool begin(const CallNumber& call, Answer answer);
  void end(const CallNumber& call, const rpc::RpcResult& result);

 private:
  struct Call {
    bool is_over = false;
    rpc::RpcResult result = {};
    std::vector<Answer> waiting = {};
  };
  struct Client {
    uint64_t oldest = 1;
    uint64_t heard = 0;
    std::map<uint64_t, Call> calls = {};  // by sequence
  };
  void make_room() COHORT_REQUIRES(mutex_);

  const std::size_t most_clients_;
  mutable base::Mutex mutex_;
  uint64_t next_client_ COHORT_GUARDED_BY(mutex_);
  uint64_t heard_ COHORT_GUARDED_BY(mutex_) = 0;  // how many messages
  std::map<uint64_t, Client> clients_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal::coordinator
