// SPDX-License-Identifier: Apache-2.0
//
// SwapEMAWeights: evaluates, predicts and saves with the moving averages of the weights.
//
//   model.compile({.optimizer = keras::Adam({.use_ema = true}),
//                  .loss = "sparse_categorical_crossentropy"});
//   model.fit(train, {.validation_data = test, .callbacks = {keras::SwapEMAWeights()}});
#pragma once

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct SwapEMAWeightsOptions {
  /// Put the averages into the model at the end of each epoch, for callbacks that come after this
  /// one in the list (such as ModelCheckpoint), and take them out when the next one begins.
  bool swap_on_epoch = false;
};

/// The averages are the model's weights while it is evaluated, in fit's validation, too, and while
/// it predicts; training goes on with its own. After fit the model has the averages, as after every
/// fit with use_ema. Before the first update nothing is swapped. Where one of them ends with an
/// exception the model has its own weights.
/// Where it is better than Keras: predict() gives the weights back, and a fit that ends early with
/// swap_on_epoch has the averages, not the last weights.
/// TF: keras.callbacks.SwapEMAWeights.
class SwapEMAWeights : public Callback {
 public:
  /// Errors: at the begin of fit, evaluate and predict FailedPrecondition for an optimizer without
  ///         use_ema; Unimplemented under parameter servers.
  explicit SwapEMAWeights(SwapEMAWeightsOptions options = {});
};

}  // namespace cohort::keras
