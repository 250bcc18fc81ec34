// SPDX-License-Identifier: Apache-2.0
//
// Who may call a communicator of those that could, and what its failures end.
#include <string_view>
#include <thread>
#include <typeinfo>

#include "cohort/base/scope_exit.h"
#include "cohort/collectives/communicator.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal {

bool Communicator::has_turn() const {
  if (holder_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return true;
  const ReplicaGroup* const here = enclosing_replica_group();
  return here != nullptr && here == run_.load(std::memory_order_relaxed);
}

// A failure that was not thrown here yet is what this turn is told of.
void Communicator::begin_turn() {
  if (!failed()) return;
  if (told_.exchange(true)) return renew();
  check();
}

void Communicator::take_turn(const char* operation, FunctionRef<void()> body,
                             const ReplicaGroup* run) {
  if (size_ == 1 || has_turn()) return body();
  const MutexLock lock(turn_);
  begin_turn();
  holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  run_.store(run, std::memory_order_relaxed);
  const ScopeExit ended([this] {
    run_.store(nullptr, std::memory_order_relaxed);
    holder_.store({}, std::memory_order_relaxed);
  });
  guard(operation, body);
}

void Communicator::guard(const char* operation, FunctionRef<void()> body) {
  if (size_ == 1) return body();
  try {
    body();
  } catch (...) {
    throw_agreed(std::current_exception(), operation);
  }
}

// What was thrown here where it is what all throw, but of a class that does not travel.
void Communicator::throw_agreed(const std::exception_ptr& mine, const char* operation) {
  abort(mine, operation);
  told_.store(true);
  try {
    check();
  } catch (const Error& agreed) {
    try {
      std::rethrow_exception(mine);
    } catch (const std::exception& e) {
      const bool is_mine = std::string_view(agreed.what()).starts_with(e.what());
      if (is_mine && typeid(e) != typeid(agreed)) throw;
    }
    throw;
  }
  std::rethrow_exception(mine);
}

}  // namespace cohort::internal
