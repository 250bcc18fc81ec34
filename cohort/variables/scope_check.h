// SPDX-License-Identifier: Apache-2.0
//
// Strategies are not mixed: what is done to a variable is done in its own strategy's scope, or in
// none.
#pragma once

namespace cohort::internal::variables {

class VariableImpl;

/// `what` is done to the variable: "a write of".
/// Errors: FailedPrecondition, with both strategies and the variable, cross-replica in the scope of
///         another strategy; a variable that was made outside of every strategy may be used in all.
void check_scope_of(const char* operation, const char* what, const VariableImpl& variable);

}  // namespace cohort::internal::variables
