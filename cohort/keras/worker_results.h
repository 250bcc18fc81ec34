// SPDX-License-Identifier: Apache-2.0
//
// What steps of several workers have given, on each of them; internal. Every worker calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cohort/keras/compiled_model.h"

namespace cohort::internal::collectives {
class Communicator;
}  // namespace cohort::internal::collectives
namespace cohort::keras::internal {

/// The steps of all replicas of all workers, in their order.
/// Errors: FailedPrecondition that names two workers whose steps log unlike values.
std::vector<LoggedStep> steps_of_all(cohort::internal::collectives::Communicator& others,
                                     std::span<const LoggedStep> steps);

/// The outputs of all workers, step by step, in the order of all replicas. `counts`: how many of
/// `rows` came from each local replica in each step, as many numbers on every worker.
/// Errors: FailedPrecondition for outputs of another shape but for the rows.
Tensor rows_of_all(cohort::internal::collectives::Communicator& others, const Tensor& rows,
                   std::span<const int64_t> counts, int local_replicas);

}  // namespace cohort::keras::internal
