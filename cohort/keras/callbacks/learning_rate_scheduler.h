// SPDX-License-Identifier: Apache-2.0
//
// LearningRateScheduler: the learning rate of each epoch, by a function.
//
//   keras::LearningRateScheduler halve([](int epoch, double rate) {
//     return epoch > 0 && epoch % 10 == 0 ? rate / 2 : rate;
//   });
//   model.fit(train, {.epochs = 30, .callbacks = {halve}});
#pragma once

#include <functional>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

struct LearningRateSchedulerOptions {
  int verbose = 0;  ///< 1: says what was set.
};

/// Ahead of each epoch the function gets its number, from 0, and the rate so far. The rate is in
/// the logs as "learning_rate". For a rate by step see learning_rate.h. TF:
/// keras.callbacks.LearningRateScheduler.
class LearningRateScheduler : public Callback {
 public:
  using Schedule = std::function<double(int epoch, double rate)>;
  /// Errors: InvalidArgument for no function; fit throws what set_learning_rate does, so
  ///         FailedPrecondition for an optimizer with a schedule.
  explicit LearningRateScheduler(Schedule schedule, LearningRateSchedulerOptions options = {});
};

}  // namespace cohort::keras
