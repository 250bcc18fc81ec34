// SPDX-License-Identifier: Apache-2.0
//
// What the loss makes of the predictions' mask and type; internal.
#pragma once

#include "cohort/keras/losses/loss.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Sample weights with 0 for what the mask leaves out; undefined: it leaves nothing out. Of a mean
/// the others weigh more, so that it is theirs alone. TF: keras.src.losses.loss.apply_mask.
Tensor masked_weight(const Tensor& mask, const Tensor& sample_weight, Reduction reduction);

/// A loss of what counts, and how much counts, which is what a mean of it is divided by.
struct CountedLoss {
  Tensor value;  ///< As Loss::reduced with scale 1.
  double count = 0;
  Tensor device_count =
      {};  ///< Instead of `count` where the loss is a device's, which nobody reads.
};

/// A loss of no rows.
CountedLoss nothing_counted(const Tensor& value);

/// Of predictions with a mask, or without (undefined), and of losses that leave something out:
/// what one of the two leaves out is no part of it. TF: Loss.__call__.
CountedLoss counted_loss(LossBase& loss, const Tensor& y_true, const Tensor& y_pred,
                         const Tensor& mask, const Tensor& sample_weight);

/// Half types become float32: losses are computed in floatx(), as in Keras.
Tensor as_loss_type(const Tensor& y_pred);

}  // namespace cohort::keras::internal
