// SPDX-License-Identifier: Apache-2.0
//
// TerminateOnNaN: ends fit when the loss is NaN or infinite.
//
//   model.fit(train, {.epochs = 100, .callbacks = {keras::TerminateOnNaN()}});
#pragma once

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct TerminateOnNaNOptions {
  bool raise_error = false;  ///< Throw FailedPrecondition instead of ending fit as stop_training().
};

/// Looks at the loss after every step (or execution); NaN and infinities count.
/// TF: keras.callbacks.TerminateOnNaN.
class TerminateOnNaN : public Callback {
 public:
  explicit TerminateOnNaN(TerminateOnNaNOptions options = {});
};

}  // namespace cohort::keras
