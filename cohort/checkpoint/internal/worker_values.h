// SPDX-License-Identifier: Apache-2.0
//
// Values that each of several processes has of its own: "data/worker_0", "data/worker_1", ... where
// the program has "data".
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "cohort/checkpoint/internal/object_graph.h"
#include "cohort/checkpoint/internal/saved_values.h"
#include "cohort/checkpoint/saving_group.h"

namespace cohort::internal::checkpoint {

/// A line for each value: what processes that save together have to agree on.
std::string lines_of(const ObjectGraph& graph);

/// What read() gives. Errors: Internal if it has another type or shape than the object said; an
/// unset shape is any.
Tensor read_checked(const std::string& path, DType dtype, const std::optional<Shape>& shape,
                    const std::function<Tensor()>& read);

/// Puts the values of all processes into `out`: one as `path` if they have the same bytes, else
/// each by its rank. A null group: this one's.
void put_value(SavingGroup* group, const std::string& path, const Tensor& mine,
               std::map<std::string, Tensor>& out);

/// Makes this process's of the values that were kept for each: what is left is as saved alone.
/// Errors: InvalidArgument if there were another number of processes, unless allow_partial.
void choose_own(const ObjectGraph& graph, const SavingGroup* group, const std::string& source,
                bool allow_partial, std::map<std::string, Tensor>& saved);

/// The chief's, everywhere.
SavedValues from_chief(SavingGroup* group, SavedValues saved);

}  // namespace cohort::internal::checkpoint
