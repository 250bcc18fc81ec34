// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/calls.h"

#include <condition_variable>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/base/mutex.h"

namespace cohort::internal {

struct Calls::Shared {
  struct Over {
    std::size_t call;
    RpcResult result;
  };
  Mutex mutex;
  std::condition_variable_any changed;
  std::vector<Over> over COHORT_GUARDED_BY(mutex);

  std::vector<Over> next() {
    const MutexLock lock(mutex);
    changed.wait(mutex, [this]() COHORT_REQUIRES(mutex) { return !over.empty(); });
    return std::exchange(over, {});
  }
};

Calls::Calls(std::chrono::milliseconds timeout)
    : timeout_(timeout), shared_(std::make_shared<Shared>()) {}

Calls::~Calls() {
  while (taken_ < takes_.size()) taken_ += shared_->next().size();
}

void Calls::start(RpcClient& server, const char* method, Payload request,
                  std::function<void(const Payload&)> take) {
  const std::size_t call = takes_.size();
  takes_.push_back(std::move(take));
  // gRPC ends every call at its deadline.
  server.start(method, std::move(request), {.timeout = timeout_},
               [shared = shared_, call](RpcResult result) {
                 const MutexLock lock(shared->mutex);
                 shared->over.push_back({call, std::move(result)});
                 shared->changed.notify_one();
               });
}

void Calls::wait() {
  std::size_t first = takes_.size();
  std::exception_ptr error;
  const auto fail = [&](std::size_t call, std::exception_ptr what) {
    if (call >= first) return;
    first = call;
    error = std::move(what);
  };
  while (taken_ < takes_.size()) {
    for (Shared::Over& one : shared_->next()) {
      ++taken_;
      if (one.result.error) {
        fail(one.call, one.result.error);
      } else if (takes_[one.call]) {
        try {
          takes_[one.call](one.result.payload);
        } catch (...) {
          fail(one.call, std::current_exception());
        }
      }
    }
  }
  takes_.clear();
  taken_ = 0;
  if (error) std::rethrow_exception(error);
}

}  // namespace cohort::internal
