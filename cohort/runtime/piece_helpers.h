// SPDX-License-Identifier: Apache-2.0
//
// Threads that help one caller with pieces of work where cores are shared. It waits for pieces that
// a helper has begun, and never for a helper: one that gets no core costs it nothing, while the
// join of an OpenMP region waits until each of its threads has run.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/process_mark.h"
#include "cohort/runtime/wait_word.h"

namespace cohort::internal::runtime {

/// Threads: one caller. Fork: a child has no helpers; there run() works alone.
class PieceHelpers {
 public:
  /// The most pieces of one call.
  static constexpr int kMostPieces = 0xffff;

  PieceHelpers() = default;
  ~PieceHelpers();
  PieceHelpers(const PieceHelpers&) = delete;
  PieceHelpers& operator=(const PieceHelpers&) = delete;

  /// Calls piece(i) for each i below `pieces` once, on this thread and up to `helpers` others, in
  /// the caller's float mode; returns when all have ended. Pieces must not throw. Helpers are
  /// started when they are first wanted; where the system gives no more threads there are fewer.
  void run(int helpers, int pieces, base::FunctionRef<void(int piece)> piece);

 private:
  struct Shared;
  void start(int helpers);

  const base::ProcessMark process_;
  Shared* shared_ = nullptr;  // left to itself in a child of fork
  std::vector<std::thread> threads_;
  bool refused_ = false;  // the system has given no further thread
};

}  // namespace cohort::internal::runtime
