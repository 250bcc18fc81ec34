// SPDX-License-Identifier: Apache-2.0
//
// TensorBoard: writes what TensorBoard shows while fit runs.
//
//   model.fit(train, {.epochs = 10, .validation_data = test,
//                     .callbacks = {keras::TensorBoard("logs/first")}});
//
// then `tensorboard --logdir logs`.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct TensorBoardOptions {
  int histogram_freq = 0;  ///< Epochs between histograms of the weights; 0: none.
  bool write_steps_per_second = false;
  /// Steps between the values of a running epoch; 0: values of whole epochs only.
  int64_t update_freq = 0;
};

/// In `log_dir`/train, by epoch (from 0): "epoch_loss" and the other values of the logs, and
/// "epoch_learning_rate"; those of the validation by the same names in `log_dir`/validation. With
/// update_freq also "batch_loss" and the like, by step of all epochs (from 1); with histogram_freq
/// each weight's elements, by its path. A separate evaluate() writes
/// "evaluation_loss_vs_iterations" by the optimizer's updates.
/// Of several workers the chief writes. A fit that goes on from a backup goes on with its steps.
/// TF: keras.callbacks.TensorBoard, without its graph, images, embeddings and profiles.
class TensorBoard : public Callback {
 public:
  /// Errors: InvalidArgument for negative numbers; hooks throw Error with the system's text if a
  ///         file cannot be written.
  explicit TensorBoard(std::string log_dir = "logs", TensorBoardOptions options = {});
};

}  // namespace cohort::keras
