// SPDX-License-Identifier: Apache-2.0
//
// EarlyStopping: ends fit when a value has stopped getting better.
//
//   model.fit(train, {.epochs = 100, .validation_data = test,
//                     .callbacks = {keras::EarlyStopping({.patience = 3,
//                                                         .restore_best_weights = true})}});
#pragma once

#include <optional>
#include <string>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;                 ///< Less than this is no improvement.
  int patience = 0;                     ///< Epochs without one after which fit ends.
  int verbose = 0;                      ///< 1: says when and why.
  std::string mode = "auto";            ///< "min", "max"; "auto" asks the model's metric.
  std::optional<double> baseline = {};  ///< What is worse does not count as an improvement that
                                        ///< gives new patience.
  bool restore_best_weights = false;    ///< At the end of fit, Ctrl-C's too; not if fit throws.
  int start_from_epoch = 0;             ///< Epochs before this one are not watched.
};

/// A value that the logs lack is a warning, and nothing is done. TF: keras.callbacks.EarlyStopping.
class EarlyStopping : public Callback {
 public:
  /// Errors: InvalidArgument for a mode or patience that does not exist; at the beginning of fit
  ///         for mode "auto" where no metric has a known direction.
  explicit EarlyStopping(EarlyStoppingOptions options = {});

  /// The epoch after which fit was ended; nullopt if it was not.
  std::optional<int> stopped_epoch() const;
  /// The epoch with the best value; nullopt before one was seen.
  std::optional<int> best_epoch() const;
};

}  // namespace cohort::keras
