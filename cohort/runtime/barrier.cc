// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/barrier.h"

#include "cohort/base/strings.h"

namespace cohort::internal::runtime {

void Barrier::arrive(SpinBudget& budget, base::FunctionRef<void()> before_parking) {
  // In this order: a failure after the look at the state moves the generation on, and one before
  // the generation was read shows in the state. The other way round its wake-up could be missed.
  const uint32_t generation = generation_.load(std::memory_order_seq_cst);
  const uint32_t meetings = meetings_.load(std::memory_order_acquire);
  if (poisoned()) throw_failure();
  if (arrived_.fetch_add(1, std::memory_order_seq_cst) + 1 == members_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1, std::memory_order_release);
    generation_.add(1);
    generation_.wake_all();
    return;
  }
  // Both orders of arrive() here and leave() there are caught: each writes first, then looks. Who
  // leaves after this meeting has moved the generation on before, and is no divergence.
  if (left_.load(std::memory_order_seq_cst) > 0 &&
      generation_.load(std::memory_order_seq_cst) == generation) {
    fail(kDiverged);
  }
  generation_.wait_while(generation, budget, before_parking);
  // A meeting that took place counts, even if somebody has failed behind it since: what comes after
  // it happens on every member or on none. The next one cannot take place without this member.
  if (meetings_.load(std::memory_order_acquire) == meetings) throw_failure();
}

void Barrier::leave() {
  left_.fetch_add(1, std::memory_order_seq_cst);
  if (arrived_.load(std::memory_order_seq_cst) > 0) fail(kDiverged);
}

void Barrier::poison() { fail(kPeerFailed); }

void Barrier::fail(State state) {
  uint32_t fine = kFine;
  state_.compare_exchange_strong(fine, state, std::memory_order_acq_rel);
  generation_.add(1);
  generation_.wake_all();
}

void Barrier::throw_failure() const {
  if (state_.load(std::memory_order_acquire) == kDiverged) {
    throw MembersDiverged(str_cat("[barrier] expected all ", members_,
                                  " members at the meeting, got one that has left"));
  }
  throw PeerFailed("[strategy.run] cancelled, because another replica failed");
}

void Barrier::reset() {
  arrived_.store(0, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  state_.store(kFine, std::memory_order_release);
}

}  // namespace cohort::internal::runtime
