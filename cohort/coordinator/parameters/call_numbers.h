// SPDX-License-Identifier: Apache-2.0
//
// Numbers of the calls to one parameter server that change something: a call that is sent again
// because its answer was lost has the number it had, by which the server knows it (call_memory.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "cohort/base/mutex.h"
#include "cohort/coordinator/parameters/message.h"
#include "cohort/rpc/client.h"

namespace cohort::internal::coordinator {

/// Threads: thread-safe.
class CallNumbers {
 public:
  explicit CallNumbers(std::shared_ptr<rpc::RpcClient> server) : server_(std::move(server)) {}

  rpc::RpcClient& server() { return *server_; }
  /// Asks the server who this client is, unless it has. Errors: as RpcClient.
  void open(std::chrono::milliseconds timeout, bool wait_for_server);
  /// Behind open(). Nothing: too many calls have no answer yet.
  std::optional<CallNumber> take();
  /// The call's answer is here, or nobody waits for it any more.
  void end(const CallNumber& call);
  /// Blocks: until take() gives one, or for some milliseconds.
  void wait_for_room();
  /// Who this client is; 0: nobody yet.
  uint64_t client() const;

 private:
  uint64_t oldest() const COHORT_REQUIRES(mutex_) {
    return open_.empty() ? last_ + 1 : *open_.begin();
  }
  bool has_room() const COHORT_REQUIRES(mutex_);

  const std::shared_ptr<rpc::RpcClient> server_;
  base::Mutex opening_;  // held while the server is asked
  mutable base::Mutex mutex_;
  std::condition_variable_any changed_;
  uint64_t client_ COHORT_GUARDED_BY(mutex_) = 0;
  uint64_t last_ COHORT_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> open_ COHORT_GUARDED_BY(mutex_);  // sequences without an answer
};

}  // namespace cohort::internal::coordinator
