// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/calls.h"

#include <algorithm>
#include <condition_variable>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"

namespace cohort::internal::coordinator {
namespace {

using std::chrono::milliseconds;

// Half a second together: long enough for a connection that was cut to stand again, short enough
// that a server that has died is named soon. Tries are counted, for a machine may be slow.
constexpr int kMostTries = 8;
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kMostPause{100};

bool is_unavailable(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Unavailable&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

struct Calls::Shared {
  struct Over {
    std::size_t call;
    rpc::RpcResult result;
  };
  base::Mutex mutex;
  std::condition_variable_any changed;
  std::vector<Over> over COHORT_GUARDED_BY(mutex);

  // Those that are over; none: `until` has come.
  std::vector<Over> next(Clock::time_point until) {
    const base::MutexLock lock(mutex);
    const auto any = [this]() COHORT_REQUIRES(mutex) { return !over.empty(); };
    if (until == Clock::time_point::max()) {
      changed.wait(mutex, any);  // gRPC ends every call at its deadline
    } else {
      changed.wait_until(mutex, until, any);
    }
    return std::exchange(over, {});
  }
};

Calls::Calls(milliseconds timeout) : timeout_(timeout), shared_(std::make_shared<Shared>()) {}

Calls::~Calls() {
  while (over_ < calls_.size()) move_on();
}

void Calls::start(rpc::RpcClient& server, const char* method, rpc::Payload request, Take take,
                  bool wait_for_server) {
  add({.server = &server,
       .method = method,
       .request = std::move(request),
       .take = std::move(take),
       .wait_for_server = wait_for_server});
}

void Calls::start_once(CallNumbers& server, const char* method, const rpc::Payload& request,
                       Take take, bool wait_for_server) {
  server.open(timeout_, wait_for_server);
  std::optional<CallNumber> number = server.take();
  // It may be this object's own calls that fill the window, and need this thread to be sent again.
  for (; !number; number = server.take())
    over_ < calls_.size() ? move_on() : server.wait_for_room();
  add({.server = &server.server(),
       .method = method,
       .request = numbered(*number, request),
       .take = std::move(take),
       .wait_for_server = wait_for_server,
       .numbers = &server,
       .number = *number});
}

void Calls::add(Call call) {
  calls_.push_back(std::move(call));
  send(calls_.size() - 1);
}

void Calls::send(std::size_t index) {
  const Call& call = calls_[index];
  const auto gone = std::chrono::duration_cast<milliseconds>(Clock::now() - call.begun);
  call.server->start(call.method, call.request,
                     {.timeout = std::max(timeout_ - gone, milliseconds(1)),
                      .wait_for_server = call.wait_for_server},
                     [shared = shared_, index](rpc::RpcResult result) {
                       const base::MutexLock lock(shared->mutex);
                       shared->over.push_back({index, std::move(result)});
                       shared->changed.notify_one();
                     });
}

// Waits for an answer, or until a call is due to be sent again.
void Calls::move_on() {
  const auto due = again_.empty() ? Clock::time_point::max() : again_.begin()->first;
  for (Shared::Over& one : shared_->next(due)) finish(one.call, one.result);
  while (!again_.empty() && again_.begin()->first <= Clock::now()) {
    const std::size_t index = again_.begin()->second;
    again_.erase(again_.begin());
    send(index);
  }
}

bool Calls::again_later(std::size_t index, const std::exception_ptr& error) {
  Call& call = calls_[index];
  if (!is_unavailable(error) || ++call.tries >= kMostTries) return false;
  again_.emplace(Clock::now() + std::min(kFirstPause * (1 << (call.tries - 1)), kMostPause), index);
  return true;
}

void Calls::finish(std::size_t index, const rpc::RpcResult& result) {
  if (result.error && again_later(index, result.error)) return;
  Call& call = calls_[index];
  ++over_;
  if (call.numbers != nullptr) call.numbers->end(call.number);
  call.request = {};
  if (result.error) return fail(index, result.error);
  if (!call.take) return;
  try {
    call.take(result.payload);
  } catch (...) {
    fail(index, std::current_exception());
  }
}

void Calls::fail(std::size_t index, std::exception_ptr error) {
  if (error_ && failed_ < index) return;
  failed_ = index;
  error_ = std::move(error);
}

void Calls::wait() {
  while (over_ < calls_.size()) move_on();
  calls_.clear();
  over_ = 0;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace cohort::internal::coordinator
