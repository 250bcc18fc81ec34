// SPDX-License-Identifier: Apache-2.0
//
// A lock for what one thread uses all the time and others almost never. The owner pays two plain
// stores and a load; whoever else wants in has the system interrupt all of the process's threads,
// which makes a fence of the owner's store and load.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace cohort::internal::runtime {

class OwnerGate {
 public:
  /// The owner's, around every use.
  void enter() {
    while (true) {
      inside_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (!shut_.load(std::memory_order_acquire)) [[likely]]
        return;
      leave();
      while (shut_.load(std::memory_order_acquire)) std::this_thread::yield();
    }
  }
  void leave() { inside_.store(false, std::memory_order_release); }

  /// Anybody else's: keeps the owner out until open(). False if the system has no such fence, if
  /// another one keeps it out already, or if the owner does not leave (its thread stayed in the
  /// parent of this process).
  bool shut() {
    if (!has_fence() || shut_.exchange(true, std::memory_order_acquire)) return false;
    const bool fenced = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    constexpr int kPatience = 1000;
    for (int i = 0; fenced && i < kPatience; ++i) {
      if (!inside_.load(std::memory_order_acquire)) return true;
      std::this_thread::yield();
    }
    open();
    return false;
  }
  void open() { shut_.store(false, std::memory_order_release); }

 private:
  static bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }
  static bool has_fence() {
    static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    return registered;
  }

  std::atomic<bool> inside_{false};
  std::atomic<bool> shut_{false};
};

}  // namespace cohort::internal::runtime
