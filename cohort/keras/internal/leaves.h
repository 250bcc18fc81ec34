// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a nest, one behind the other, and a nest of the same structure around others.
#pragma once

#include <vector>

#include "cohort/data/core/element.h"

namespace cohort::keras::internal {

/// Errors: InvalidArgument for a nest with other leaves than tensors.
std::vector<Tensor> leaves_of(const data::Element& nest);
/// Order: as many leaves as leaves_of(nest) gives.
data::Element with_leaves(const data::Element& nest, const std::vector<Tensor>& leaves);

}  // namespace cohort::keras::internal
