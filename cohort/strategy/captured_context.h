// SPDX-License-Identifier: Apache-2.0
//
// CapturedContext: carries a thread's context (strategy, replica, LibTorch's modes) to a thread
// that the program has started.
//
//   strategy.run([&] {
//     const CapturedContext here = CapturedContext::capture();
//     std::thread helper([&] { const auto guard = here.enter(); get_strategy(); ... });
//     helper.join();
//   });
#pragma once

#include <memory>

namespace cohort {

/// The calling thread's strategy and context, replica id, whose random numbers it draws, and
/// LibTorch's thread-local state (grad mode, autocast). A new thread has none of them. What belongs
/// to a step of fit is not taken along. Copies share what was captured. Threads: immutable.
class CapturedContext {
 public:
  static CapturedContext capture();

  class [[nodiscard]] Guard {
   public:
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    friend class CapturedContext;
    struct State;
    explicit Guard(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Gives the calling thread the captured context, until the guard ends. A replica's
  /// context holds until its run ends, and one thread at a time may act for a replica: the thread
  /// that captured waits for it.
  /// Errors: FailedPrecondition inside another strategy, or if the captured run is over.
  Guard enter() const;

 private:
  struct Captured;
  explicit CapturedContext(std::shared_ptr<const Captured> captured)
      : captured_(std::move(captured)) {}
  std::shared_ptr<const Captured> captured_;
};

}  // namespace cohort
