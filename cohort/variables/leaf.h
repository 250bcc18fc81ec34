// SPDX-License-Identifier: Apache-2.0
//
// What a replica computes with in place of a variable, and where its gradient goes during a pass.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/runtime/tensor.h"
#include "cohort/runtime/thread_context.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal::variables {

/// Where one replica's gradient of a variable goes during a backward pass.
struct GradientSlot {
  Tensor view;           ///< The variable's place in the gradient buffer of this pass.
  bool written = false;  ///< Something was written in this pass: later writes add.
  bool summed = false;   ///< `view` has the engine's part, too (see Component::adopt).
  std::vector<IndexedSlices> rows = {};  ///< Parts of the gradient that `view` does not have.
};

/// True if there are `handles` handles to the tensor, and nothing else shares its memory (another
/// view, detach()). Whatever others did with it has happened before.
bool has_only_handles(const Tensor& tensor, uint32_t handles);

/// Threads: bound to its replica's thread; but of a strategy's only replica several threads may
/// compute gradients at once.
struct Leaf {
  Tensor tensor;  ///< A leaf of LibTorch's that requires gradients if the variable is trainable.
  GradientSlot slot;
  const runtime::ThreadSlots* slot_thread = nullptr;  ///< Whose pass has opened the slot, or null.
  std::shared_ptr<void> accumulator;  ///< Keeps the leaf's autograd node alive: one per variable.

  /// Opens the slot for a pass of the calling thread. False if another thread's pass has it: this
  /// one then gets its gradients as any LibTorch node gives them.
  bool open_slot() {
    const runtime::ThreadSlots* nobody = nullptr;
    return std::atomic_ref(slot_thread)
        .compare_exchange_strong(nobody, &runtime::t_slots, std::memory_order_acquire);
  }
  /// True if a pass of this thread asks for the variable: nodes write into `slot.view`.
  bool has_open_slot() {
    return std::atomic_ref(slot_thread).load(std::memory_order_relaxed) == &runtime::t_slots;
  }
  void close_slot() {
    slot = {};
    std::atomic_ref(slot_thread).store(nullptr, std::memory_order_release);
  }
};

}  // namespace cohort::internal::variables
