// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/call_numbers.h"

#include "cohort/coordinator/parameters/call_memory.h"
#include "cohort/coordinator/parameters/calls.h"

namespace cohort::internal::coordinator {
namespace {

constexpr std::chrono::milliseconds kLookAgain{50};

}  // namespace

uint64_t CallNumbers::client() const {
  const base::MutexLock lock(mutex_);
  return client_;
}

void CallNumbers::open(std::chrono::milliseconds timeout, bool wait_for_server) {
  if (client() != 0) return;
  const base::MutexLock opening(opening_);
  if (client() != 0) return;
  uint64_t client = 0;
  Calls calls(timeout);
  // A client that is never heard of again, because this answer was lost, costs the server little.
  calls.start(
      *server_, "ps.open", message({}),
      [&](const rpc::Payload& payload) {
        PayloadReader data("[parameter_servers] ", payload);
        const std::string header = data.header();
        rpc::MessageReader in("[parameter_servers] ", header);
        client = in.number();
        in.end();
      },
      wait_for_server);
  calls.wait();
  const base::MutexLock lock(mutex_);
  client_ = client;
}

bool CallNumbers::has_room() const { return last_ + 1 - oldest() < kCallWindow; }

std::optional<CallNumber> CallNumbers::take() {
  const base::MutexLock lock(mutex_);
  if (!has_room()) return std::nullopt;
  open_.insert(++last_);
  return CallNumber{.client = client_, .sequence = last_, .oldest = oldest()};
}

void CallNumbers::end(const CallNumber& call) {
  const base::MutexLock lock(mutex_);
  open_.erase(call.sequence);
  changed_.notify_all();
}

void CallNumbers::wait_for_room() {
  const base::MutexLock lock(mutex_);
  changed_.wait_for(mutex_, kLookAgain, [this]() COHORT_REQUIRES(mutex_) { return has_room(); });
}

}  // namespace cohort::internal::coordinator
