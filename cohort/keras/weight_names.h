// SPDX-License-Identifier: Apache-2.0
//
// What weights are called in files; internal.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

/// Each weight of a model with its name in a file.
using NamedWeights = std::vector<std::pair<std::string, Variable>>;

/// How earlier versions named them: "dense_3/kernel", where 3 is the number of the layer in the
/// process that saved. `file` are the names in the file: layers without a given name are found by
/// the order in which they were made, whatever their numbers were there and are here.
NamedWeights weights_by_old_names(const keras::LayerBase& model,
                                  const std::map<std::string, Tensor>& file);

}  // namespace cohort::keras::internal
