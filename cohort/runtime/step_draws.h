// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that a step draws before it is known to succeed: one that fails takes them back,
// so that later steps draw what they would have drawn without it, and every replica the same step
// of its stream.
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/runtime/thread_context.h"

namespace cohort::internal::runtime {

/// Counts the draws that each local replica (-1: none) has made of one stream.
class DrawCounts {
 public:
  DrawCounts() = default;
  virtual ~DrawCounts() = default;
  DrawCounts(const DrawCounts&) = delete;
  DrawCounts& operator=(const DrawCounts&) = delete;

  /// The replica's next draw is `first` again, if its last ones were [first, first + draws): what
  /// another thread has drawn since is never drawn twice. Threads: thread-safe.
  virtual void take_back(int replica, uint64_t first, uint64_t draws) = 0;
};

/// Tells the step that the calling thread is in, if it is in one, of a draw.
void note_draw(const std::shared_ptr<DrawCounts>& counts, int replica, uint64_t draw);

/// Who is told: the class of ThreadContext::undo, which stands on a higher floor.
using NoteDraw = void (*)(variables::StepUndo& step, const std::shared_ptr<DrawCounts>& counts,
                          int replica, uint64_t draw);
/// Order: before a thread's context has its first StepUndo.
void note_draws_by(NoteDraw note);

}  // namespace cohort::internal::runtime
