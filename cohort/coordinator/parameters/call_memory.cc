// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/parameters/call_memory.h"

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"

namespace cohort::internal::coordinator {

// Who has calls that run is heard of again, for their answers.
void CallMemory::make_room() {
  auto oldest = clients_.end();
  for (auto it = clients_.begin(); it != clients_.end(); ++it) {
    const auto& calls = it->second.calls;
    const bool runs = std::any_of(calls.begin(), calls.end(),
                                  [](const auto& each) { return !each.second.is_over; });
    if (runs || (oldest != clients_.end() && it->second.heard > oldest->second.heard)) continue;
    oldest = it;
  }
  COHORT_CHECK_STATE(oldest != clients_.end(), "[ps] this server remembers ", most_clients_,
                     " clients at most, and each of them has a call that runs; try again when one "
                     "of these has ended");
  clients_.erase(oldest);
}

uint64_t CallMemory::open() {
  const base::MutexLock lock(mutex_);
  if (clients_.size() >= most_clients_) make_room();
  clients_[++next_client_].heard = ++heard_;
  return next_client_;
}

void CallMemory::close(uint64_t client) {
  const base::MutexLock lock(mutex_);
  clients_.erase(client);
}

std::size_t CallMemory::clients() const {
  const base::MutexLock lock(mutex_);
  return clients_.size();
}

bool CallMemory::begin(const CallNumber& call, Answer answer) {
  rpc::RpcResult result;
  {
    const base::MutexLock lock(mutex_);
    const auto found = clients_.find(call.client);
    COHORT_CHECK_STATE(found != clients_.end(),
                       "[ps] expected a client that this parameter server knows, got one from "
                       "before the server was restarted, or one that was silent for too long; make "
                       "the variables again, and restore them from a checkpoint");
    Client& client = found->second;
    client.heard = ++heard_;
    client.oldest = std::max(client.oldest, call.oldest);
    client.calls.erase(client.calls.begin(), client.calls.lower_bound(client.oldest));
    COHORT_CHECK_STATE(
        call.sequence >= client.oldest && call.sequence - client.oldest < kCallWindow,
        "[ps] expected call ", client.oldest, " of this client, or one of the ", kCallWindow - 1,
        " after it, got call ", call.sequence, "; it came too late and was not done");
    const auto [it, is_new] = client.calls.try_emplace(call.sequence);
    if (!it->second.is_over) {
      it->second.waiting.push_back(std::move(answer));
      return is_new;
    }
    result = it->second.result;
  }
  answer(result);
  return false;
}

void CallMemory::end(const CallNumber& call, const rpc::RpcResult& result) {
  std::vector<Answer> waiting;
  {
    const base::MutexLock lock(mutex_);
    const auto client = clients_.find(call.client);
    if (client == clients_.end()) return;
    const auto found = client->second.calls.find(call.sequence);
    if (found == client->second.calls.end()) return;  // the client has given it up
    found->second.is_over = true;
    found->second.result = result;
    waiting = std::exchange(found->second.waiting, {});
  }
  for (const Answer& each : waiting) each(result);
}

}  // namespace cohort::internal::coordinator
