// SPDX-License-Identifier: Apache-2.0
//
// ModelCheckpoint: keeps the model, or its weights, while fit runs.
//
//   keras::ModelCheckpoint("mlp-{epoch:02d}-{val_loss:.3f}.safetensors");
//   keras::ModelCheckpoint("best.keras", {.monitor = "val_loss", .save_best_only = true});
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";  ///< Looked at with save_best_only.
  int verbose = 0;                   ///< 1: says what was saved, and why not.
  /// Where the logs lack what is watched every one is saved, with one warning, as Keras does.
  bool save_best_only = false;
  std::string mode = "auto";  ///< "min", "max"; "auto" asks the model's metric.
  /// Steps between two files, counted over all epochs; 0: one after every epoch.
  int64_t save_every_batches = 0;
  std::optional<double> initial_value_threshold = {};  ///< What the first one has to beat.
};

/// Saves the model (Model::save) where the path ends with .keras, else its weights
/// (Model::save_weights, .weights.h5 or .safetensors), under a name made of the path: {epoch} and
/// {batch} count from 1, any other name in braces is a value of the logs; {name:02d}, {name:.3f},
/// {name:.2e} and {name:g} format it as in Python. Missing folders are made. With several workers
/// the chief writes, at the path that it was given. TF: keras.callbacks.ModelCheckpoint;
/// save_weights_only is in the path's ending.
class ModelCheckpoint : public Callback {
 public:
  /// Errors: InvalidArgument for a path that ends otherwise, braces that do not match, or {batch}
  ///         without save_every_batches. Its hooks throw InvalidArgument for a name in braces that
  ///         the logs lack, and with save_best_only at the beginning of fit for mode "auto" where
  ///         no metric says its direction; Error with the system's reason for a folder that cannot
  ///         be made.
  explicit ModelCheckpoint(std::string filepath, ModelCheckpointOptions options = {});
};

}  // namespace cohort::keras

namespace cohort::keras::internal {

/// Errors: InvalidArgument for braces that do not match.
void check_braces(const std::string& pattern);

/// The path with the names in braces filled in.
std::string format_path(const std::string& pattern, int64_t epoch, int64_t batch,
                        const keras::Logs& logs);

}  // namespace cohort::keras::internal
