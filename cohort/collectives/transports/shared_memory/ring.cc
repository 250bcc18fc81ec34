// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "cohort/base/scope_exit.h"
#include "cohort/runtime/relax.h"

namespace cohort::internal::collectives {
namespace {

// Between processes: without FUTEX_PRIVATE_FLAG.
void futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* wait) {
  syscall(SYS_futex, &word, operation, value, wait, nullptr, 0);
}

}  // namespace

// ring() against wait(), as in WaitWord: who waits counts itself, then looks once more; who rings
// changes, then reads the count. All are sequentially consistent, so one of them sees the other.
bool SharedBell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return false;
  futex(rings_, FUTEX_WAKE, INT_MAX, nullptr);
  return true;
}

void PeerBell::ring() const {
  if (!bell->ring() || door < 0) return;
  const char byte = 0;
  // A pipe that is full wakes as well as one that is not; and who is gone needs no waking.
  [[maybe_unused]] const ssize_t written = ::write(door, &byte, 1);
}

namespace {

constexpr uint64_t word_of(const SharedBell::Event& event) {
  return event.number << 3 | static_cast<uint64_t>(event.kind);
}

}  // namespace

// Who changed something did so before it comes here; who waits says for whom, counts itself, and
// looks once more.
void SharedBell::arrive(const Event& event, int rank) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t bit = rank < kRankBits ? uint64_t{1} << rank : 0;
  uint64_t missing = missing_.load(std::memory_order_seq_cst);
  for (;;) {
    const uint64_t ranks = missing & kAnything;
    if (ranks == kAnything) {
      ring();
      return;
    }
    if ((ranks & bit) == 0) return;
    // Of this sleep, if `missing` still is when that has been read.
    const uint64_t awaited = awaited_.load(std::memory_order_seq_cst);
    const uint64_t here = word_of(event);
    const bool is_awaited = (here & 7) == (awaited & 7) && here >= awaited;
    const uint64_t next = is_awaited ? missing & ~bit : missing;
    if (!missing_.compare_exchange_strong(missing, next, std::memory_order_seq_cst)) continue;
    if (is_awaited && (next & kAnything) == 0) ring();
    return;
  }
}

// Says what is slept for. False if that has come by now.
bool SharedBell::begin_sleep_for(const Sleep& sleep) {
  uint64_t missing = 0;
  for (const int rank : sleep.ranks) {
    if (rank >= kRankBits - 1) missing = kAnything;  // all of them together are not kAnything
    if (missing != kAnything && !sleep.has_come(rank)) missing |= uint64_t{1} << rank;
  }
  if (!sleep.event) missing = kAnything;
  if (sleep.event) awaited_.store(word_of(*sleep.event), std::memory_order_seq_cst);
  const uint64_t sleeps = (missing_.load(std::memory_order_relaxed) >> kRankBits) + 1;
  missing_.store(sleeps << kRankBits | missing, std::memory_order_seq_cst);
  begin_sleep();
  if (missing == kAnything) return true;
  // Who has come before it could see that it was missing.
  for (const int rank : sleep.ranks) {
    const uint64_t bit = uint64_t{1} << rank;
    if ((missing & bit) == 0 || !sleep.has_come(rank)) continue;
    missing_.fetch_and(~bit, std::memory_order_seq_cst);
  }
  return (missing_.load(std::memory_order_seq_cst) & kAnything) != 0;
}

void SharedBell::wait(uint32_t seen, runtime::SpinBudget& budget,
                      std::chrono::steady_clock::time_point deadline,
                      base::FunctionRef<bool()> is_over, const Sleep& sleep) {
  const int spins = budget.next();
  for (int i = 0; i < spins; ++i) {
    if (is_over() || rings() != seen) return budget.met(i);
    runtime::relax();
  }
  const auto left = deadline - std::chrono::steady_clock::now();
  if (rings() != seen || left <= left.zero()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec wait{.tv_sec = seconds.count(),
                      .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
  const bool is_missing = begin_sleep_for(sleep);
  const base::ScopeExit awake([&] {
    missing_.fetch_and(~kAnything, std::memory_order_seq_cst);
    end_sleep();
  });
  if (is_missing && !is_over()) futex(rings_, FUTEX_WAIT, seen, &wait);
  budget.parked();
}

void SharedBell::wait(uint32_t seen, runtime::SpinBudget& budget,
                      std::chrono::steady_clock::time_point deadline,
                      base::FunctionRef<bool()> is_over) {
  wait(seen, budget, deadline, is_over, {});
}

std::size_t RingWriter::write(std::span<const std::byte> bytes) {
  SharedRing& r = *ring_;
  const uint64_t head = r.head.load(std::memory_order_relaxed);
  uint64_t tail = r.tail.load(std::memory_order_acquire);
  if (SharedRing::kBytes - (head - tail) < bytes.size()) {
    // Says so, then looks once more; the reader moves the tail, then looks whether it was said.
    r.writer_is_full.store(1, std::memory_order_seq_cst);
    tail = r.tail.load(std::memory_order_seq_cst);
  }
  const std::size_t room = SharedRing::kBytes - (head - tail);
  const std::size_t now = std::min(room, bytes.size());
  if (now == 0) return 0;
  const std::size_t at = head % SharedRing::kBytes;
  const std::size_t first = std::min(now, SharedRing::kBytes - at);
  std::memcpy(r.bytes + at, bytes.data(), first);
  std::memcpy(r.bytes, bytes.data() + first, now - first);
  r.head.store(head + now, std::memory_order_seq_cst);
  return now;
}

std::size_t RingReader::read(std::span<std::byte> bytes) {
  SharedRing& r = *ring_;
  const uint64_t tail = r.tail.load(std::memory_order_relaxed);
  const uint64_t head = r.head.load(std::memory_order_acquire);
  const std::size_t now = std::min<std::size_t>(head - tail, bytes.size());
  if (now == 0) return 0;
  const std::size_t at = tail % SharedRing::kBytes;
  const std::size_t first = std::min(now, SharedRing::kBytes - at);
  std::memcpy(bytes.data(), r.bytes + at, first);
  std::memcpy(bytes.data() + first, r.bytes, now - first);
  r.tail.store(tail + now, std::memory_order_seq_cst);
  if (r.writer_is_full.load(std::memory_order_seq_cst) != 0 &&
      r.writer_is_full.exchange(0, std::memory_order_seq_cst) != 0) {
    writer_.ring();
  }
  return now;
}

}  // namespace cohort::internal::collectives
