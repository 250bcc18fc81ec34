// SPDX-License-Identifier: Apache-2.0
//
// The state of one fit; internal.
#pragma once

#include "cohort/keras/fit_position.h"
#include "cohort/keras/interrupt.h"
#include "cohort/keras/progress_logger.h"
#include "cohort/keras/trainer.h"

namespace cohort::keras::internal {

struct Trainer::Fit {
  InputStream& train;
  InputStream* validation = nullptr;
  const keras::FitOptions& options;
  CallbackList callbacks = {};
  ProgressLogger* progress = nullptr;
  InterruptGuard guard{InterruptGuard::Of::kFit};
  FitPosition position;
  bool warned = false;       // of a loss that is no number
  bool interrupted = false;  // here or on another worker
};

}  // namespace cohort::keras::internal
