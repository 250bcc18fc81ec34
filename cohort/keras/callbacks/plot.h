// SPDX-License-Identifier: Apache-2.0
//
// Plot: the curves of a training as a picture, drawn anew after each epoch.
//
//   model.fit(train, {.epochs = 10, .callbacks = {keras::Plot("curves.png")}});
#pragma once

#include <string>

#include "cohort/keras/callbacks/callback.h"
#include "cohort/keras/plot_history.h"

namespace cohort::keras {

/// As utils::plot_history, of the epochs of this fit, and of those before where BackupAndRestore
/// goes on with one. A value that an epoch lacks is a gap. Of several workers the chief writes.
class Plot : public Callback {
 public:
  /// `filename` ends with ".svg" or ".png".
  /// Errors: InvalidArgument for another one, and as plot_history when an epoch ends.
  explicit Plot(std::string filename, PlotOptions options = {});
};

}  // namespace cohort::keras
