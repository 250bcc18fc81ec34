// SPDX-License-Identifier: Apache-2.0
//
// The two weights that most layers have, as their options say.
#pragma once

#include <utility>

#include "cohort/keras/layer.h"

namespace cohort::keras::internal {

template <class C>
WeightOptions kernel_options(const C& o, Shape shape) {
  return {.name = "kernel",
          .shape = std::move(shape),
          .dtype = o.dtype.variable_dtype(),
          .initializer = o.kernel_initializer,
          .regularizer = o.kernel_regularizer,
          .constraint = o.kernel_constraint};
}

template <class C>
WeightOptions bias_options(const C& o, Shape shape) {
  return {.name = "bias",
          .shape = std::move(shape),
          .dtype = o.dtype.variable_dtype(),
          .initializer = o.bias_initializer,
          .regularizer = o.bias_regularizer,
          .constraint = o.bias_constraint};
}

}  // namespace cohort::keras::internal
