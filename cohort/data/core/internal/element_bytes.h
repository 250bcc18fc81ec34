// SPDX-License-Identifier: Apache-2.0
//
// What an element takes in memory.
#pragma once

#include <cstdint>

#include "cohort/data/core/element.h"

namespace cohort::internal::data {

/// Bytes of its tensors and strings; datasets count nothing. Cost: computes what is deferred.
int64_t element_bytes(const Element& element);

}  // namespace cohort::internal::data
