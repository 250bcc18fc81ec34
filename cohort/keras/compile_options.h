// SPDX-License-Identifier: Apache-2.0
//
// What Model::compile is told.
#pragma once

#include <vector>

#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"

namespace cohort::keras {

struct CompileOptions {
  Optimizer optimizer = "rmsprop";
  Loss loss = {};
  std::vector<Metric> metrics = {};
  std::vector<Metric> weighted_metrics = {};  ///< Those that see the sample weights.
  /// Steps that one call to the replicas makes. Callbacks are called once for all of them.
  int steps_per_execution = 1;
  /// Parts in which workers of a ParameterServerStrategy evaluate what a DatasetCreator makes.
  /// 0: five for each worker. TF: the same, with "auto" for that.
  int pss_evaluation_shards = 0;
  /// How batches count whose rows do not divide by the replicas. True: every example the same, 1/n
  /// of the gradient, whichever replica it is on. False: TensorFlow's way, the replicas' means
  /// over the number of replicas.
  bool exact_uneven_batches = true;
};

}  // namespace cohort::keras
