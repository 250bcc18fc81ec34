// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/internal/open_calls.h"

#include <algorithm>
#include <utility>

namespace cohort::internal::rpc {
namespace {

// gRPC ends nearly all calls itself: it has this long beyond the deadline.
constexpr std::chrono::milliseconds kGrace{250};
// So often calls are looked at while there are any.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

OpenCalls::OpenCalls(ErrorOf error_of)
    : error_of_(std::move(error_of)), thread_([this] { tell_late_ones(); }) {}

OpenCalls::~OpenCalls() {
  if (!process_.is_ours()) {  // the thread is the parent's
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
    any_open_.notify_all();
  }
  thread_.join();
}

bool OpenCalls::enter(const Call& call) {
  const base::MutexLock lock(mutex_);
  if (cancelled_) return false;
  open_.insert(call);
  if (sleeps_) any_open_.notify_all();
  return true;
}

void OpenCalls::end(const Call& call, RpcResult result) {
  std::function<void(RpcResult)> done;
  {
    const base::MutexLock lock(mutex_);
    done.swap(call->done);
  }
  if (done) done(std::move(result));
  done = nullptr;
  // A context has a share of the channel, which no thread of gRPC's may be the last to drop.
  std::shared_ptr<grpc::ClientContext> context;
  {
    const base::MutexLock lock(mutex_);
    context.swap(call->context);
  }
  context.reset();
  // Last: whoever waits for the end of all calls goes on, and the client ends.
  const base::MutexLock lock(mutex_);
  open_.erase(call);
  all_over_.notify_all();
}

void OpenCalls::cancel() {
  std::vector<std::shared_ptr<grpc::ClientContext>> contexts;
  {
    const base::MutexLock lock(mutex_);
    cancelled_ = true;
    cancelled_at_ = std::min(cancelled_at_, Clock::now());
    for (const Call& call : open_) {
      if (call->context) contexts.push_back(call->context);
    }
  }
  for (const auto& context : contexts) context->TryCancel();
}

bool OpenCalls::is_cancelled() const {
  const base::MutexLock lock(mutex_);
  return cancelled_;
}

void OpenCalls::wait_for_all() {
  if (!process_.is_ours()) return;
  const base::MutexLock lock(mutex_);
  all_over_.wait(mutex_, [this]() COHORT_REQUIRES(mutex_) { return open_.empty(); });
}

void OpenCalls::tell_late_ones() {
  for (;;) {
    const std::vector<Late> late = next_late_ones();
    if (late.empty()) return;
    for (const Late& each : late) {
      const auto code = each.cancelled ? ErrorCode::kCancelled : ErrorCode::kDeadlineExceeded;
      const char* what = each.cancelled ? "the client was ended" : "it does not read what is sent";
      each.done({.error = error_of_(*each.call, code, what)});
      each.context->TryCancel();
    }
  }
}

// None: the end.
std::vector<OpenCalls::Late> OpenCalls::next_late_ones() {
  const base::MutexLock lock(mutex_);
  for (;;) {
    sleeps_ = true;
    any_open_.wait(mutex_, [this]() COHORT_REQUIRES(mutex_) { return ends_ || !open_.empty(); });
    sleeps_ = false;
    if (ends_) return {};
    std::vector<Late> late = take_late_ones(Clock::now());
    if (!late.empty()) return late;
    any_open_.wait_for(mutex_, kLook, [this]() COHORT_REQUIRES(mutex_) { return ends_; });
  }
}

std::vector<OpenCalls::Late> OpenCalls::take_late_ones(Clock::time_point now) {
  std::vector<Late> out;
  const bool cancelled = cancelled_ && now - kGrace > cancelled_at_;
  for (const Call& call : open_) {
    if (!call->done || !call->context || (!cancelled && now - kGrace <= call->deadline)) continue;
    out.push_back({.call = call,
                   .context = call->context,
                   .done = std::exchange(call->done, nullptr),
                   .cancelled = cancelled});
  }
  return out;
}

}  // namespace cohort::internal::rpc
