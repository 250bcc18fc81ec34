// SPDX-License-Identifier: Apache-2.0
//
// CSVLogger: a line of a file for each epoch.
//
//   model.fit(train, {.epochs = 10, .callbacks = {keras::CSVLogger("training.csv")}});
#pragma once

#include <string>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct CSVLoggerOptions {
  std::string separator = ",";
  bool append = false;  ///< To an existing file, for a fit that is run again.
};

/// The first line has the names: "epoch", then those of the logs in alphabetical order; numbers are
/// written so that they can be read back exactly. A value that an epoch lacks is "NA". Of several
/// workers the chief writes. Each line is in the file when its epoch ends.
/// TF: keras.callbacks.CSVLogger.
class CSVLogger : public Callback {
 public:
  /// Errors: InvalidArgument for an empty separator, and at the end of the first epoch for a file
  ///         with other names to append to; Error with the system's text if the file cannot be
  ///         opened or written.
  explicit CSVLogger(std::string filename, CSVLoggerOptions options = {});
};

}  // namespace cohort::keras
