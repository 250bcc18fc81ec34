// SPDX-License-Identifier: Apache-2.0
//
// The calls of one client that gRPC has not ended yet. gRPC holds back the end of a call, whatever
// its deadline, while bytes of it have no room in a socket that nobody reads: a server stands
// still. Who called is told in time all the same.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"
#include "cohort/base/process_mark.h"
#include "cohort/rpc/lane.h"

namespace cohort::internal::rpc {

/// gRPC reads and writes it until the call is over.
struct OpenCall {
  using Clock = std::chrono::steady_clock;

  std::shared_ptr<grpc::ClientContext> context = std::make_shared<grpc::ClientContext>();
  grpc::ByteBuffer request;
  grpc::ByteBuffer answer;
  std::string method;
  Clock::time_point begun = Clock::now();
  Clock::time_point deadline = {};
  std::function<void(RpcResult)> done;  // none: it has been told
};

/// Threads: thread-safe.
class OpenCalls {
 public:
  using Call = std::shared_ptr<OpenCall>;
  /// Makes the error of a call that gRPC did not end in time.
  using ErrorOf = std::function<std::exception_ptr(const OpenCall&, ErrorCode, const std::string&)>;

  explicit OpenCalls(ErrorOf error_of);
  /// All calls are over.
  ~OpenCalls();
  OpenCalls(const OpenCalls&) = delete;
  OpenCalls& operator=(const OpenCalls&) = delete;

  /// False: the client was ended.
  [[nodiscard]] bool enter(const Call& call);
  /// gRPC has ended it. `result` goes to who called, if nobody has told it yet.
  void end(const Call& call, RpcResult result);
  /// Ends all calls, and lets none in any more. Blocks: never.
  void cancel();
  bool is_cancelled() const;
  /// Blocks: until gRPC has ended all calls.
  void wait_for_all();

 private:
  using Clock = OpenCall::Clock;
  struct Late {
    Call call;
    std::shared_ptr<grpc::ClientContext> context;
    std::function<void(RpcResult)> done;
    bool cancelled = false;
  };
  void tell_late_ones();
  std::vector<Late> next_late_ones();
  std::vector<Late> take_late_ones(Clock::time_point now) COHORT_REQUIRES(mutex_);
  bool was_cancelled() const COHORT_REQUIRES(mutex_);
  Clock::time_point late_at(const OpenCall& call) const COHORT_REQUIRES(mutex_);
  Clock::time_point first_late_at() const COHORT_REQUIRES(mutex_);

  const base::ProcessMark process_;
  const ErrorOf error_of_;
  mutable base::Mutex mutex_;
  std::condition_variable_any all_over_;
  std::condition_variable_any sooner_;
  std::set<Call> open_ COHORT_GUARDED_BY(mutex_);
  Clock::time_point cancelled_at_ COHORT_GUARDED_BY(mutex_) = Clock::time_point::max();
  // When the thread looks again, if nobody wakes it; max: when there is a call.
  Clock::time_point wakes_at_ COHORT_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool ends_ COHORT_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // tells the late ones
};

}  // namespace cohort::internal::rpc
