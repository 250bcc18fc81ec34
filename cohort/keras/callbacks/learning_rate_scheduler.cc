// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/learning_rate_scheduler.h"

#include "cohort/base/check.h"
#include "cohort/keras/model.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::keras {

namespace {

class LearningRateSchedulerBase final : public CallbackBase {
 public:
  LearningRateSchedulerBase(LearningRateScheduler::Schedule schedule, int verbose)
      : schedule_(std::move(schedule)), verbose_(verbose) {
    COHORT_CHECK_ARG(schedule_ != nullptr,
                     "[learning_rate_scheduler] expected a function, got none");
  }

  void on_epoch_begin(int epoch) override {
    const Optimizer& optimizer = model().optimizer();
    const double rate = schedule_(epoch, optimizer.learning_rate());
    optimizer.set_learning_rate(rate);
    if (verbose_ == 0 || !model().strategy().extended().should_save_summary()) return;
    internal::print_out(str_cat("\nEpoch ", epoch + 1,
                                ": LearningRateScheduler setting learning rate to ",
                                optimizer.learning_rate(), ".\n"));
  }
  void on_epoch_end(int /*epoch*/, Logs& logs) override {
    logs.set("learning_rate", model().optimizer().learning_rate());
  }

 private:
  const LearningRateScheduler::Schedule schedule_;
  const int verbose_;
};

}  // namespace

LearningRateScheduler::LearningRateScheduler(Schedule schedule,
                                             LearningRateSchedulerOptions options)
    : Callback(std::make_shared<LearningRateSchedulerBase>(std::move(schedule), options.verbose)) {}

}  // namespace cohort::keras
