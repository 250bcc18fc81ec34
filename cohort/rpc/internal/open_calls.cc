// SPDX-License-Identifier: Apache-2.0
#include "cohort/rpc/internal/open_calls.h"

#include <algorithm>
#include <utility>

#include "cohort/runtime/thread_name.h"

namespace cohort::internal::rpc {
namespace {

// gRPC ends nearly all calls itself: it has this long beyond the deadline.
constexpr std::chrono::milliseconds kGrace{250};

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
    sooner_.notify_all();
  }
  thread_.join();
}

bool OpenCalls::enter(const Call& call) {
  const base::MutexLock lock(mutex_);
  if (was_cancelled()) return false;
  open_.insert(call);
  // Deadlines come one behind the other as a rule: the thread sleeps on.
  if (late_at(*call) < wakes_at_) sooner_.notify_all();
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
    cancelled_at_ = std::min(cancelled_at_, Clock::now());
    sooner_.notify_all();
    for (const Call& call : open_) {
      if (call->context) contexts.push_back(call->context);
    }
  }
  for (const auto& context : contexts) context->TryCancel();
}

bool OpenCalls::is_cancelled() const {
  const base::MutexLock lock(mutex_);
  return was_cancelled();
}

void OpenCalls::wait_for_all() {
  if (!process_.is_ours()) return;
  const base::MutexLock lock(mutex_);
  all_over_.wait(mutex_, [this]() COHORT_REQUIRES(mutex_) { return open_.empty(); });
}

void OpenCalls::tell_late_ones() {
  runtime::set_thread_name("cohort-calls");
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
  while (!ends_) {
    std::vector<Late> late = take_late_ones(Clock::now());
    if (!late.empty()) return late;
    wakes_at_ = first_late_at();
    if (wakes_at_ == Clock::time_point::max()) {
      sooner_.wait(mutex_);
    } else {
      sooner_.wait_until(mutex_, wakes_at_);
    }
  }
  return {};
}

std::vector<OpenCalls::Late> OpenCalls::take_late_ones(Clock::time_point now) {
  std::vector<Late> out;
  for (const Call& call : open_) {
    if (!call->done || !call->context || now < late_at(*call)) continue;
    out.push_back({.call = call,
                   .context = call->context,
                   .done = std::exchange(call->done, nullptr),
                   .cancelled = was_cancelled()});
  }
  return out;
}

bool OpenCalls::was_cancelled() const { return cancelled_at_ != Clock::time_point::max(); }

OpenCalls::Clock::time_point OpenCalls::late_at(const OpenCall& call) const {
  return std::min(call.deadline, cancelled_at_) + kGrace;
}

OpenCalls::Clock::time_point OpenCalls::first_late_at() const {
  auto out = Clock::time_point::max();
  for (const Call& call : open_) {
    if (call->done) out = std::min(out, late_at(*call));
  }
  return out;
}

}  // namespace cohort::internal::rpc
