// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/barrier.h"

#include "cohort/base/strings.h"
#include "cohort/runtime/topology.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cohort::internal {
namespace {

// About 50 us on current machines: longer than replicas usually differ within a step, shorter
// than what a scheduler would notice.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

int spins_before_parking(int threads) { return threads <= usable_cores() ? kSpins : 0; }

void wait_while_equal(const std::atomic<uint32_t>& word, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    relax();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

void Barrier::arrive() {
  // In this order: a failure after the look at the state moves the generation on, and one before
  // the generation was read shows in the state. The other way round its wake-up could be missed.
  const uint32_t generation = generation_.load(std::memory_order_seq_cst);
  const uint32_t meetings = meetings_.load(std::memory_order_acquire);
  if (poisoned()) throw_failure();
  if (arrived_.fetch_add(1, std::memory_order_seq_cst) + 1 == members_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    generation_.notify_all();
    return;
  }
  // Both orders of arrive() here and leave() there are caught: each writes first, then looks. Who
  // leaves after this meeting has moved the generation on before, and is no divergence.
  if (left_.load(std::memory_order_seq_cst) > 0 &&
      generation_.load(std::memory_order_seq_cst) == generation) {
    fail(kDiverged);
  }
  wait_while_equal(generation_, generation, spins_);
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
  generation_.fetch_add(1, std::memory_order_seq_cst);
  generation_.notify_all();
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

}  // namespace cohort::internal
