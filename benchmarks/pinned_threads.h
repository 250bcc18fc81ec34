// SPDX-License-Identifier: Apache-2.0
//
// Threads of the benchmarks' own, each on a core, that meet by spinning.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace cohort::bench {

class SpinBarrier {
 public:
  explicit SpinBarrier(int n) : n_(n) {}
  void wait() {
    const int turn = turn_.load();
    int spins = 0;
    if (arrived_.fetch_add(1) == n_ - 1) {
      arrived_ = 0;
      turn_ = turn + 1;
    } else {
      while (turn_.load(std::memory_order_acquire) == turn) {
        if (++spins % 4096 == 0) std::this_thread::yield();  // more threads than cores
        _mm_pause();
      }
    }
  }

 private:
  const int n_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> turn_{0};
};

/// Runs work(index, barrier) on one pinned thread for each core, and waits for all.
void on_cores(const std::vector<int>& cores, const std::function<void(int, SpinBarrier&)>& work);

}  // namespace cohort::bench
