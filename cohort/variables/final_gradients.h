// SPDX-License-Identifier: Apache-2.0
//
// Who sends gradients away while others are still computed: is told of each as soon as it is final.
//
//   const PassListener pass(updater->expect_gradients([&] { return RuleOfStep{rule}; }), loss);
//   Gradients gradients = tape.gradient(loss, variables);  // tells meanwhile
//   updater->apply(gradients, rule);
#pragma once

#include <exception>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::variables {

struct Component;

/// Threads: each replica's own, in its backward pass.
class FinalGradients {
 public:
  /// `gradient` is what the tape will return for this leaf, complete, in its place in the arena.
  /// Not of leaves whose gradient is not complete before the pass has ended (parts of it are rows,
  /// or hooks of the program change it). Errors: end the pass.
  virtual void on_final(Component& leaf, const Tensor& gradient) = 0;
  /// What comes of the pass has been applied, or is not going to be.
  virtual void on_over() noexcept = 0;
  /// The pass has ended by an error: what was announced is not going to be applied.
  virtual void on_failure(const std::exception_ptr& error) noexcept = 0;

 protected:
  ~FinalGradients() = default;
};

/// While it lives, the next backward pass from `target` on this thread tells `to` (null: nobody)
/// of leaves that tell_when_final() has been called for; passes inside of that one do not.
/// Threads: bound to its thread.
class [[nodiscard]] PassListener {
 public:
  PassListener(FinalGradients* to, const Tensor& target);
  ~PassListener();
  PassListener(const PassListener&) = delete;
  PassListener& operator=(const PassListener&) = delete;

  /// Internal: of the pass that runs on this thread, if somebody is told; else null.
  static FinalGradients* current();

 private:
  FinalGradients* const to_;
  int pass_ = -1;  // LibTorch's number of it, once it runs
  PassListener* const outer_;
};

/// From now on passes tell their listener of this leaf, and put its gradient into its slot as soon
/// as it is complete; not if the program has hooks on the leaf. Once is enough, also for a leaf
/// that is adopted later. Replicas must be at rest.
void tell_when_final(Component& component);

}  // namespace cohort::internal::variables
