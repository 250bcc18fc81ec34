// SPDX-License-Identifier: Apache-2.0
//
// ReduceLROnPlateau: a smaller learning rate when a value has stopped getting better.
//
//   model.fit(train, {.epochs = 100, .validation_data = test,
//                     .callbacks = {keras::ReduceLROnPlateau({.factor = 0.2, .patience = 5})}});
#pragma once

#include <string>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;        ///< By which the rate is multiplied, below 1.
  int patience = 10;          ///< Epochs without an improvement after which it is.
  int verbose = 0;            ///< 1: says when, and to what.
  std::string mode = "auto";  ///< "min", "max"; "auto" asks the model's metric.
  double min_delta = 1e-4;    ///< Less than this is no improvement.
  int cooldown = 0;           ///< Epochs after a reduction that are not counted.
  double min_lr = 0;          ///< Not below this rate.
};

/// The rate is in the logs as "learning_rate". A value that the logs lack is a warning, and nothing
/// is done. A fit that goes on from a backup goes on with what was counted.
/// TF: keras.callbacks.ReduceLROnPlateau.
class ReduceLROnPlateau : public Callback {
 public:
  /// Errors: InvalidArgument for a factor that is not below 1 or is negative, negative numbers of
  ///         epochs, or a mode that does not exist; at the beginning of fit for mode "auto" where
  ///         no metric has a known direction. fit throws FailedPrecondition for an optimizer
  ///         with a schedule.
  explicit ReduceLROnPlateau(ReduceLROnPlateauOptions options = {});
};

}  // namespace cohort::keras
