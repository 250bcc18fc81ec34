// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/wait_word.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "cohort/runtime/relax.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal::runtime {
namespace {

// About 50 us on current machines: longer than replicas usually differ within a step, shorter
// than what a scheduler would notice.
constexpr int kMostSpins = 2000;

// The kernel's word is an int of the same size and place.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futex(const std::atomic<uint32_t>& word, int operation, uint32_t value) {
  syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

}  // namespace

int most_spins(int threads) { return threads <= cores_at_once() ? kMostSpins : 0; }

void WaitWord::wait_while(uint32_t old, SpinBudget& budget,
                          base::FunctionRef<void()> before_parking) {
  const int spins = budget.next();
  for (int i = 0; i < spins; ++i) {
    if (load() != old) return budget.met(i);
    relax();
  }
  if (load() != old) return;
  before_parking();
  if (load() != old) return;
  parked_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old) futex(value_, FUTEX_WAIT, old);
  parked_.fetch_sub(1, std::memory_order_relaxed);
  budget.parked();
}

void WaitWord::wake_all() {
  if (parked_.load(std::memory_order_seq_cst) > 0) futex(value_, FUTEX_WAKE, INT_MAX);
}

}  // namespace cohort::internal::runtime
