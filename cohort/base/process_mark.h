// SPDX-License-Identifier: Apache-2.0
//
// fork copies an object but none of its threads: used in the child it would wait for ever, and a
// file that it reads goes on being the parent's. What has threads or files remembers its process:
//
//   void run() { process_.check("strategy.run", "a strategy"); ... }
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace cohort::internal::base {

/// How often fork was called on the way to this process, from the first mark on.
extern std::atomic<uint32_t> forks_before_us;

/// A member of what belongs to the process that made it.
/// Threads: immutable. Cost: one load for each question.
class ProcessMark {
 public:
  ProcessMark();
  /// False in a child of the process that made it.
  bool is_ours() const { return made_at_ == forks_before_us.load(std::memory_order_relaxed); }
  /// Errors: FailedPrecondition that says to make `what` in the child, unless it is ours.
  void check(const char* operation, const char* what) const {
    if (!is_ours()) [[unlikely]] {
      fail(operation, what);
    }
  }

 private:
  [[noreturn]] static void fail(const char* operation, const char* what);

  uint32_t made_at_;
};

/// Shared by whoever has it; the last one destroys it, but not in a child of this process, where
/// its threads are missing and its sockets are the parent's.
template <class T>
std::shared_ptr<T> kept_to_this_process(std::unique_ptr<T> owned) {
  return {owned.release(), [mark = ProcessMark()](T* last) {
            if (mark.is_ours()) delete last;
          }};
}

}  // namespace cohort::internal::base
