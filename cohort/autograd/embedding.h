// SPDX-License-Identifier: Apache-2.0
//
// Rows of a table by their numbers, with a gradient that has only these rows.
//
//   Variable table(random_normal({10000, 64}), {.name = "words"});
//   Tensor words = embedding_lookup(table, ids);               // [batch, length, 64]
//   Gradients g = tape.gradient(loss, std::span(&table, 1));   // IndexedSlices, not [10000, 64]
#pragma once

#include "cohort/variables/variable.h"

namespace cohort {

/// Copies of the rows. Where a table is only used by lookups, tape.gradient gives IndexedSlices:
/// the rows of all lookups of the pass one after the other, repeated ones as often as they were
/// looked up. With another use of the table, and without a tape, the gradient is dense.
/// Shapes: table [n, rest...], ids [...] of int32 or int64, result [..., rest...].
/// Errors: InvalidArgument that names the table for ids that are no integers or outside [0, n).
/// Cost: proportional to the ids, forward and backward.
/// TF: tf.nn.embedding_lookup.
Tensor embedding_lookup(const Variable& table, const Tensor& ids);

}  // namespace cohort
