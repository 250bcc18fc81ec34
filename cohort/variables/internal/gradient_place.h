// SPDX-License-Identifier: Apache-2.0
//
// What a program may have done to a view of the gradient arena that it held.
#pragma once

#include <cstddef>

#include "cohort/runtime/tensor.h"

namespace cohort::internal::variables {

/// Whether a view still has the memory, shape and order that it was made with: whoever held it may
/// have changed them in place (resize_, t_, set_, requires_grad_).
inline bool is_as_made(const Tensor& view, const Tensor& like, const std::byte* place) {
  return view.const_data_ptr() == place && view.sizes() == like.sizes() && view.is_contiguous() &&
         !view.requires_grad();
}

}  // namespace cohort::internal::variables
