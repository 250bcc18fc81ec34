// SPDX-License-Identifier: Apache-2.0
//
// The values that a checkpoint's roots have now, by path: "model/dense/kernel".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/checkpoint/trackable.h"

namespace cohort::internal::checkpoint {

using Roots = std::vector<std::pair<std::string, std::shared_ptr<Trackable>>>;

struct LiveValue {
  std::vector<std::string> paths;  ///< Several for what two objects share; by the first it is kept.
  TrackedValue value;
};

struct GrowingObject {
  std::string path;
  std::shared_ptr<TrackedObject> object;
};

struct ObjectGraph {
  std::vector<LiveValue> values = {};  ///< In the order of the program.
  std::vector<GrowingObject> growing = {};
  std::vector<std::string> gone = {};       ///< Paths of objects that do not exist any more.
  std::shared_ptr<SavingGroup> group = {};  ///< Who saves with this process; null: nobody.
};

/// Errors: InvalidArgument for two values of one path, pieces that do not fill their value, objects
///         of two strategies of several workers, or nested without end.
ObjectGraph walk(const char* operation, const Roots& roots);

/// Errors: FailedPrecondition that names an object which does not exist any more.
void check_none_gone(const char* operation, const ObjectGraph& graph);

/// Whether `path` is `prefix`, or lies below it.
bool is_below(std::string_view path, std::string_view prefix);

/// Errors: InvalidArgument for a name that is empty or has a '/'.
void check_part_name(const char* operation, const std::string& name);

}  // namespace cohort::internal::checkpoint
