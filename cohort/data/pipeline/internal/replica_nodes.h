// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose elements are steps: tuples with one part for each replica of this worker.
#pragma once

#include <string>
#include <vector>

#include "cohort/data/core/internal/dataset_node.h"
#include "cohort/data/pipeline/internal/split_plan.h"

namespace cohort::internal::data {

/// Batches cut into pieces. Pieces of a batch over rows in memory are deferred: each is gathered by
/// the thread that reads it first.
/// Shapes: pieces [n_i, ...], also [0, ...].
/// Errors: InvalidArgument that begins with `where` if elements have no rows: at once where the
/// spec says so, else from the stream.
NodePtr make_split_node(NodePtr batches, SplitPlan plan, const std::string& where);
/// Of one piece: rows are known if every full batch has pieces of the same size.
ElementSpec piece_spec(const ElementSpec& batch, const SplitPlan& plan);

/// One input: its elements go to the replicas in turn. One for each replica: an element of each.
/// Where some have nothing left, `fill` gives them empty elements; without it, and where elements
/// have no rows, the steps end.
/// `part` is the spec of what a replica gets.
NodePtr make_round_node(std::vector<NodePtr> inputs, const ElementSpec& part, int replicas,
                        bool fill);

/// The same structure with no rows. Errors: InvalidArgument if a component has no first dimension.
Element without_rows(const Element& element);
/// An element without rows as the spec says; unknown dimensions are 0.
/// Errors: FailedPrecondition that begins with `where` if a dtype or rank is not known.
Element without_rows(const ElementSpec& spec, const std::string& where);

}  // namespace cohort::internal::data
