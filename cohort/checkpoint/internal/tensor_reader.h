// SPDX-License-Identifier: Apache-2.0
//
// What readers of tensors from files share.
#pragma once

#include <string>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::checkpoint {

/// A new tensor for bytes of a file, whose size agrees already.
/// Errors: Error kResourceExhausted that names where it is read from and the value, if there is no
/// memory.
Tensor room_for(const char* operation, const std::string& from, const std::string& name,
                const Shape& shape, DType dtype);

}  // namespace cohort::internal::checkpoint
