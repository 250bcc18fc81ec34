// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/calls.h"

#include <algorithm>
#include <condition_variable>
#include <optional>
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
// While one call is waited for, all others are looked at so often.
constexpr milliseconds kLookAround{20};

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
                  bool wait_for_server, std::size_t answer_bytes, std::span<std::byte> answer_to) {
  add({.server = &server,
       .method = method,
       .request = std::move(request),
       .take = std::move(take),
       .wait_for_server = wait_for_server,
       .answer_bytes = answer_bytes,
       .answer_to = answer_to});
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

milliseconds Calls::time_left(const Call& call) const {
  const auto gone = std::chrono::duration_cast<milliseconds>(Clock::now() - call.begun);
  return std::max(timeout_ - gone, milliseconds(1));
}

void Calls::send(std::size_t index) {
  if (!send_in_lane(index)) send_over_grpc(index);
}

// A lane that is full has room again when one of these calls is over; where all of it is others',
// gRPC does it.
bool Calls::send_in_lane(std::size_t index) {
  for (;;) {
    Call& call = calls_[index];
    rpc::LaneStart started = call.server->start_in_lane(call.method, call.request,
                                                        {.timeout = time_left(call),
                                                         .answer_bytes = call.answer_bytes,
                                                         .answer_to = call.answer_to});
    if (started.call) {
      call.in_lane = std::move(started.call);
      in_lanes_.push_back(index);
      return true;
    }
    const auto mine = std::find_if(in_lanes_.begin(), in_lanes_.end(), [&](std::size_t other) {
      return calls_[other].server == call.server;
    });
    if (!started.is_full || mine == in_lanes_.end()) return false;
    wait_in_lane(*mine, Clock::time_point::max());
    send_again();
  }
}

// All else goes on meanwhile: others may be over, or due to be sent again.
void Calls::wait_in_lane(std::size_t index, Clock::time_point until) {
  if (!again_.empty()) until = std::min(until, again_.begin()->first);
  calls_[index].in_lane->wait(std::min(until, Clock::now() + kLookAround));
  finish_in_lanes();
  if (!any_over_grpc()) return;
  for (Shared::Over& one : shared_->next(Clock::now())) finish(one.call, one.result);
}

// False: none is over.
bool Calls::finish_in_lanes() {
  bool any = false;
  for (std::size_t i = 0; i < in_lanes_.size();) {
    const std::size_t index = in_lanes_[i];
    if (!calls_[index].in_lane->is_over()) {
      ++i;
      continue;
    }
    any = true;
    in_lanes_.erase(in_lanes_.begin() + static_cast<std::ptrdiff_t>(i));
    std::optional<rpc::RpcResult> result = calls_[index].in_lane->take();
    calls_[index].in_lane.reset();
    result ? finish(index, *result) : send_over_grpc(index);
  }
  return any;
}

void Calls::send_over_grpc(std::size_t index) {
  const Call& call = calls_[index];
  call.server->start(call.method, call.request,
                     {.timeout = time_left(call), .wait_for_server = call.wait_for_server},
                     [shared = shared_, index](rpc::RpcResult result) {
                       const base::MutexLock lock(shared->mutex);
                       shared->over.push_back({index, std::move(result)});
                       shared->changed.notify_one();
                     });
}

// Waits for an answer, or until a call is due to be sent again.
void Calls::move_on() {
  const auto due = again_.empty() ? Clock::time_point::max() : again_.begin()->first;
  if (in_lanes_.empty()) {
    for (Shared::Over& one : shared_->next(due)) finish(one.call, one.result);
  } else if (!finish_in_lanes()) {
    wait_in_lane(in_lanes_.front(), due);
  }
  send_again();
}

void Calls::send_again() {
  while (!again_.empty() && again_.begin()->first <= Clock::now()) {
    const std::size_t index = again_.begin()->second;
    again_.erase(again_.begin());
    send(index);
  }
}

bool Calls::again_later(std::size_t index, const std::exception_ptr& error) {
  Call& call = calls_[index];
  if (!is_unavailable(error) || ++call.tries >= kMostTries) return false;
  const auto due = Clock::now() + std::min(kFirstPause * (1 << (call.tries - 1)), kMostPause);
  // With no time left nobody would be asked, and the error would not say who was.
  if (due >= call.begun + timeout_) return false;
  again_.emplace(due, index);
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
