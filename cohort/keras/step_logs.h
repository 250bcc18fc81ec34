// SPDX-License-Identifier: Apache-2.0
//
// What the values that each replica's own train_step logs say of all replicas; internal.
#pragma once

#include <span>

#include "cohort/keras/compiled_model.h"

namespace cohort::keras::internal {

/// In a replica, after its step: finds out what the logs' values are of shares of the loss, and
/// lets go of their graphs.
void settle(LoggedStep& step);

/// Shares of a loss, their sums and multiples, are added up; all else is the mean of the replicas,
/// weighted by their rows, of integers in float64. What is read when asked for stays as it is.
/// Errors: InvalidArgument for what else was made of shares, unless replicas agree on it.
/// Blocks: where values are on devices and there are several replicas.
keras::Logs over_replicas(const char* operation, std::span<const LoggedStep> steps);

}  // namespace cohort::keras::internal
