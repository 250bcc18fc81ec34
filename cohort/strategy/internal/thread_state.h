// SPDX-License-Identifier: Apache-2.0
//
// What LibTorch keeps per thread (grad mode, inference mode, autocast, profilers, ...), on its way
// from the caller of run() to the replicas' threads.
#pragma once

#include <ATen/ThreadLocalState.h>

#include <array>
#include <optional>

namespace cohort::internal::strategy {

/// The part of it that nearly every program is content with: cheap to take, compare and set.
class PlainThreadState {
 public:
  /// Of the calling thread; nullopt if it has more (a profiler, hooks, function transforms).
  static std::optional<PlainThreadState> here();
  bool operator==(const PlainThreadState& other) const;
  /// Makes it the calling thread's.
  void set() const;

 private:
  PlainThreadState();

  c10::impl::LocalDispatchKeySet dispatch_keys_;
  c10::AutogradState autograd_;
  std::array<at::ScalarType, 2> autocast_dtypes_;
};

/// The calling thread's state. Cost: a few dozen nanoseconds where it is plain; LibTorch's own copy
/// takes 170 ns, and its guard 820 ns on every replica.
class ThreadState {
 public:
  ThreadState();

 private:
  friend class AdoptedThreadState;
  std::optional<PlainThreadState> plain_;
  std::optional<at::ThreadLocalState> full_;  // where plain_ does not say it all
  const int open_tapes_;
};

/// Gives a replica's thread the caller's state. Where that is plain, nothing is restored
/// afterwards: a replica's thread does nothing but runs, and each begins with this.
class [[nodiscard]] AdoptedThreadState {
 public:
  explicit AdoptedThreadState(const ThreadState& of_caller);

 private:
  void adopt(const ThreadState& of_caller);

  const bool own_threads_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  std::optional<at::ThreadLocalStateGuard> guard_;
};

}  // namespace cohort::internal::strategy
