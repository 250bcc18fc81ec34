// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/piece_helpers.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/thread_name.h"

namespace cohort::internal::runtime {
namespace {

// What is left to take, in one word: which call it is of, how many pieces it has, which is next.
constexpr uint64_t ticket(uint64_t call, uint64_t pieces, uint64_t next) {
  return call << 32 | pieces << 16 | next;
}
constexpr uint64_t pieces_of(uint64_t ticket) { return ticket >> 16 & 0xffff; }
constexpr uint64_t next_of(uint64_t ticket) { return ticket & 0xffff; }

}  // namespace

// Memory: who takes a piece of a call by changing `left` has read that call's `piece` and `mode`,
// for they change only when all pieces are taken, and before the next call's ticket is released. A
// helper that is late finds another call's number, and so takes nothing of the old one.
struct PieceHelpers::Shared {
  std::atomic<uint64_t> left{0};
  std::atomic<const base::FunctionRef<void(int)>*> piece{nullptr};
  std::atomic<unsigned> mode{0};
  alignas(64) WaitWord called;  // counts calls
  alignas(64) WaitWord done;    // counts pieces that helpers have ended
  std::atomic<bool> stop{false};

  // Takes pieces until none is left; returns how many.
  template <class OnDone>
  uint32_t work(OnDone on_done) {
    uint32_t taken = 0;
    uint64_t seen = left.load(std::memory_order_acquire);
    for (;;) {
      if (next_of(seen) >= pieces_of(seen)) return taken;
      const auto* const call = piece.load(std::memory_order_relaxed);
      const unsigned callers = mode.load(std::memory_order_relaxed);
      if (!left.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        continue;
      }
      set_float_mode(callers);
      (*call)(static_cast<int>(next_of(seen)));
      ++taken;
      on_done();
      seen = left.load(std::memory_order_acquire);
    }
  }

  void help() {
    set_thread_name("pieces");
    SpinBudget parks_at_once(0);
    for (uint32_t seen = called.load(); !stop.load(std::memory_order_acquire);) {
      work([&] {
        done.add(1);
        done.wake_all();
      });
      called.wait_while(seen, parks_at_once);
      seen = called.load();
    }
  }
};

PieceHelpers::~PieceHelpers() {
  if (!process_.is_ours()) {
    // There are no threads to join here, and what they waited for is in use for ever.
    static_cast<void>(new (std::nothrow) std::vector<std::thread>(std::move(threads_)));
    return;
  }
  if (shared_ == nullptr) return;
  shared_->stop.store(true, std::memory_order_release);
  shared_->called.add(1);
  shared_->called.wake_all();
  for (std::thread& thread : threads_) thread.join();
  delete shared_;
}

void PieceHelpers::start(int helpers) {
  if (shared_ == nullptr) shared_ = new Shared;
  while (!refused_ && static_cast<int>(threads_.size()) < helpers) {
    try {
      threads_.emplace_back([shared = shared_] { shared->help(); });
    } catch (const std::system_error&) {
      refused_ = true;
    }
  }
}

void PieceHelpers::run(int helpers, int pieces, base::FunctionRef<void(int)> piece) {
  if (helpers > 0 && process_.is_ours()) start(helpers);
  if (threads_.empty() || !process_.is_ours()) {
    for (int i = 0; i < pieces; ++i) piece(i);
    return;
  }
  Shared& s = *shared_;
  const uint32_t ended = s.done.load();
  const uint64_t call = (s.left.load(std::memory_order_relaxed) >> 32) + 1;
  s.piece.store(&piece, std::memory_order_relaxed);
  s.mode.store(float_mode(), std::memory_order_relaxed);
  s.left.store(ticket(call, static_cast<uint64_t>(pieces), 0), std::memory_order_release);
  s.called.add(1);
  s.called.wake_all();
  const uint32_t of_helpers = static_cast<uint32_t>(pieces) - s.work([] {});
  SpinBudget budget(most_spins(2));
  for (uint32_t now = s.done.load(); now - ended != of_helpers; now = s.done.load()) {
    s.done.wait_while(now, budget);
  }
}

}  // namespace cohort::internal::runtime
