// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint holds.
#pragma once

#include <map>
#include <set>
#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::internal {

struct SavedValues {
  std::map<std::string, Tensor> tensors = {};       ///< By path.
  std::map<std::string, std::string> aliases = {};  ///< Further paths, to those of tensors.
  /// Objects that might still have got values, had the program gone on.
  std::set<std::string> unfinished = {};
};

}  // namespace cohort::internal
