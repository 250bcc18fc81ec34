// SPDX-License-Identifier: Apache-2.0
//
// What a communicator has under way.
#pragma once

#include <cstring>
#include <functional>

#include "cohort/collectives/communicator.h"

namespace cohort::internal::collectives {

/// An operation that was started; bound to its communicator.
struct PendingOperation {
  Exchange exchange = {};
  std::chrono::milliseconds timeout{};
  uint64_t generation = 0;
  Communicator* owner = nullptr;  // null: gone
  bool done = false;
  bool withdrawn = false;
  CommunicatorScratch scratch = {};
  // When a phase has arrived. True: the exchange is that of the next phase now, which begins.
  std::function<bool(PendingOperation&)> arrived = {};

  bool has_reserved_place = false;

  bool is_pair() const { return exchange.key.channel == ExchangeKey::Channel::kPair; }
  /// Whether other ranks may start what this rank has started before it only behind it.
  bool has_own_order() const { return is_pair() || has_reserved_place; }
  const char* name() const { return collective_name(exchange.signature.collective); }
};

/// Unless they are the same.
inline void copy_apart(ConstBytes from, Bytes to) {
  if (from.data() != to.data() && !from.empty()) {
    std::memmove(to.data(), from.data(), from.size());
  }
}

}  // namespace cohort::internal::collectives
