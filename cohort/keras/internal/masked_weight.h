// SPDX-License-Identifier: Apache-2.0
//
// What the loss makes of the predictions' mask and type; internal.
#pragma once

#include "cohort/keras/losses/loss.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Sample weights with 0 for what the mask that `y_pred` carries leaves out. Of a mean the others
/// weigh more, so that it is theirs alone. TF: keras.src.losses.loss.apply_mask.
Tensor masked_weight(const Tensor& y_pred, const Tensor& sample_weight, Reduction reduction);

/// Half types become float32: losses are computed in floatx(), as in Keras.
Tensor as_loss_type(const Tensor& y_pred);

}  // namespace cohort::keras::internal
