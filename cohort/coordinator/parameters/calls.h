// SPDX-License-Identifier: Apache-2.0
//
// Several calls to servers at once.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "cohort/rpc/client.h"

namespace cohort::internal {

/// Threads: one uses it.
class Calls {
 public:
  explicit Calls(std::chrono::milliseconds timeout);
  /// Blocks: until all calls are over, which what they send and bring must outlive.
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  /// `take` gets the answer, on the thread that waits, while other calls go on.
  void start(RpcClient& server, const char* method, Payload request,
             std::function<void(const Payload&)> take = {});
  /// For all. Errors: the one of the call that was started first; the others have ended, too.
  void wait();

 private:
  struct Shared;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Shared> shared_;
  std::deque<std::function<void(const Payload&)>> takes_;  // by call
  std::size_t taken_ = 0;
};

}  // namespace cohort::internal
