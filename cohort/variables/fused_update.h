// SPDX-License-Identifier: Apache-2.0
//
// An optimizer's pass over the arenas: reads all replicas' gradients, sums them in replica order,
// clips, and hands contiguous spans to an update rule. There is no separate all-reduce.
//
//   FusedUpdate update(variables, {.slot_initial = {0, 0}});       // Adam: m and v
//   update.apply(tape.gradient(loss, variables), [&](const UpdateSpan& s) { adam(...); });
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/variables/gradients.h"
#include "cohort/variables/local_variables.h"

namespace cohort::internal {

inline constexpr int kMaxSlots = 4;

/// What a rule works on: elements of one or of several neighbouring variables.
struct UpdateSpan {
  void* parameter = nullptr;
  std::array<void*, kMaxSlots> slots = {};  ///< The optimizer's state of the same elements.
  const void* gradient = nullptr;           ///< Summed over the replicas, clipped.
  std::size_t size = 0;                     ///< Elements.
  DType dtype = kFloat32;
  int kind = 0;  ///< FusedUpdateOptions::kinds of the variables.

  template <class T>
  std::span<T> parameters() const {
    return {static_cast<T*>(parameter), size};
  }
  template <class T>
  std::span<T> slot(int i) const {
    return {static_cast<T*>(slots[static_cast<std::size_t>(i)]), size};
  }
  template <class T>
  std::span<const T> gradients() const {
    return {static_cast<const T*>(gradient), size};
  }
};

struct FusedUpdateOptions {
  std::vector<double> slot_initial = {};  ///< One number per slot; its length is the slot count.
  std::vector<int> kinds = {};            ///< Per variable; a span never mixes kinds. Empty: all 0.
  std::optional<double> clipvalue = {};   ///< Keras's three ways to clip the summed gradient.
  std::optional<double> clipnorm = {};
  std::optional<double> global_clipnorm = {};
};

/// Threads: construct in cross-replica context; apply() on every replica's thread at once.
class FusedUpdate {
 public:
  /// Errors: InvalidArgument for variables of different strategies, not trainable ones, or a
  ///         dtype other than float32 and float64.
  FusedUpdate(std::vector<Variable> variables, FusedUpdateOptions options = {});
  ~FusedUpdate();
  FusedUpdate(const FusedUpdate&) = delete;
  FusedUpdate& operator=(const FusedUpdate&) = delete;

  /// Sums gradients over replicas and applies the rule to every variable that has one.
  /// Order: a merge point with several replicas. Nothing is written before all have arrived.
  /// Errors: InvalidArgument for gradients of variables it was not built with, or if there are
  ///         none at all; FailedPrecondition in cross-replica context of several replicas, or if
  ///         replicas bring different updates.
  void apply(const Gradients& gradients, FunctionRef<void(const UpdateSpan&)> rule);

  const std::vector<Variable>& variables() const;
  int slot_count() const;
  /// A slot's first copy, in the variable's shape. Writes through set_slot only.
  Tensor slot(std::size_t variable, int slot) const;
  /// Cross-replica.
  void set_slot(std::size_t variable, int slot, const Tensor& value);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::internal
