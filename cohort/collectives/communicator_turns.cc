// SPDX-License-Identifier: Apache-2.0
//
// Who may call a communicator of those that could, and what its failures end.
#include <string_view>
#include <thread>
#include <typeinfo>

#include "cohort/base/check.h"
#include "cohort/base/scope_exit.h"
#include "cohort/base/strings.h"
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
  note_turn(operation, run != nullptr);
  const ScopeExit ended([this] {
    note_turn("", false);
    run_.store(nullptr, std::memory_order_relaxed);
    holder_.store({}, std::memory_order_relaxed);
  });
  guard(operation, body);
}

// Without the brackets and spaces that names of operations have in errors.
void Communicator::note_turn(const char* operation, bool is_step) {
  const MutexLock lock(doing_mutex_);
  std::size_t size = 0;
  for (const char* c = operation; *c != '\0' && size + 1 < doing_.size(); ++c) {
    if (*c != '[' && *c != ']' && *c != ' ') doing_[size++] = *c;
  }
  doing_[size] = '\0';
  if (is_step) ++steps_;
}

std::string Communicator::doing() const {
  const MutexLock lock(doing_mutex_);
  return doing_[0] == '\0' ? str_cat("between two operations, after step ", steps_)
                           : str_cat("in ", doing_.data(), ", step ", steps_);
}

void Communicator::check_lease() const {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  COHORT_CHECK_STATE(
      now < lease_end_.load(std::memory_order_relaxed), "[communicator] rank ", rank_, " of ",
      size_,
      " is too late: it was stopped, or cut off from the job's store, until its lease "
      "had ended. The others have gone on without it, and it must not write any more; "
      "end it, and start it again");
}

void Communicator::lose(std::span<const int> ranks, const Failure& failure) noexcept {
  if (transport_) transport_->lose(ranks, failure);
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
