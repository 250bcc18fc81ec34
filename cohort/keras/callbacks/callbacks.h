// SPDX-License-Identifier: Apache-2.0
//
// All callbacks.
#pragma once

#include "cohort/keras/callbacks/backup_and_restore.h"       // IWYU pragma: export
#include "cohort/keras/callbacks/callback.h"                 // IWYU pragma: export
#include "cohort/keras/callbacks/csv_logger.h"               // IWYU pragma: export
#include "cohort/keras/callbacks/early_stopping.h"           // IWYU pragma: export
#include "cohort/keras/callbacks/lambda_callback.h"          // IWYU pragma: export
#include "cohort/keras/callbacks/learning_rate_scheduler.h"  // IWYU pragma: export
#include "cohort/keras/callbacks/model_checkpoint.h"         // IWYU pragma: export
#include "cohort/keras/callbacks/plot.h"                     // IWYU pragma: export
#include "cohort/keras/callbacks/reduce_lr_on_plateau.h"     // IWYU pragma: export
#include "cohort/keras/callbacks/remote_monitor.h"           // IWYU pragma: export
#include "cohort/keras/callbacks/swap_ema_weights.h"         // IWYU pragma: export
#include "cohort/keras/callbacks/tensorboard.h"              // IWYU pragma: export
#include "cohort/keras/callbacks/terminate_on_nan.h"         // IWYU pragma: export
