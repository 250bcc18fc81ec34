// SPDX-License-Identifier: Apache-2.0
//
// What an optimizer keeps as a variable, so that checkpoints and programs can read and set it:
// slots of a fused update, accumulated gradients, the count of updates.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/checkpoint/trackable.h"
#include "cohort/variables/variable.h"

namespace cohort::keras::internal {

/// Where the value is and how it gets there.
struct StateAccess {
  std::function<Tensor()> read;              ///< A tensor of its own.
  std::function<void(const Tensor&)> write;  ///< Of the variable's shape and dtype.
  bool in_replicas = false;                  ///< Read there, too; else cross-replica only.
  /// Who has which part of what workers have spread over them (TrackedValue). Unset: nobody.
  std::function<std::vector<TrackedPiece>()> pieces = {};
};

struct StateOptions {
  std::string name;
  Shape shape = {};
  DType dtype = kFloat32;
};

/// A variable without storage of its own, beside `like`. Its one value stands for all replicas;
/// it is assigned cross-replica.
Variable state_variable(const Variable& like, StateOptions options, StateAccess access);
/// The same beside nothing: of no strategy.
Variable state_variable(StateOptions options, StateAccess access);

/// StateAccess::pieces of a variable; none of one that was not made here.
std::vector<TrackedPiece> pieces_of(const Variable& variable);

}  // namespace cohort::keras::internal
