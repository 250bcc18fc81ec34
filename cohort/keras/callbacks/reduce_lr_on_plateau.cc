// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/reduce_lr_on_plateau.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/callbacks/monitor.h"
#include "cohort/keras/model.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::keras {

namespace {

class ReduceLROnPlateauBase final : public CallbackBase {
 public:
  explicit ReduceLROnPlateauBase(ReduceLROnPlateauOptions options)
      : options_(std::move(options)),
        monitor_("reduce_lr_on_plateau", options_.monitor, options_.mode, options_.min_delta) {
    COHORT_CHECK_ARG(options_.factor >= 0 && options_.factor < 1,
                     "[reduce_lr_on_plateau] expected a factor of 0 or more and below 1, got ",
                     options_.factor);
    COHORT_CHECK_ARG(options_.patience >= 0 && options_.cooldown >= 0,
                     "[reduce_lr_on_plateau] expected patience >= 0 and cooldown >= 0, got ",
                     options_.patience, " and ", options_.cooldown);
  }

  void on_train_begin() override {
    monitor_.begin(model());
    best_ = monitor_.worst();
    wait_ = cooling_ = 0;
  }

  void on_epoch_end(int epoch, Logs& logs) override {
    logs.set("learning_rate", model().optimizer().learning_rate());
    const std::optional<double> value = monitor_.read(logs, "the learning rate stays");
    if (!value) return;
    if (cooling_ > 0) {
      --cooling_;
      wait_ = 0;
    }
    if (monitor_.improves(*value, best_)) {
      best_ = *value;
      wait_ = 0;
    } else if (cooling_ == 0 && ++wait_ >= options_.patience) {
      reduce(epoch);
    }
  }

  std::string save_state() override {
    cohort::internal::data::StateWriter out;
    out.put_int(std::bit_cast<int64_t>(best_));
    out.put_int(wait_);
    out.put_int(cooling_);
    return std::move(out).take();
  }
  void restore_state(std::string_view state) override {
    cohort::internal::data::StateReader in(state);
    best_ = std::bit_cast<double>(in.get_int());
    wait_ = static_cast<int>(in.get_int());
    cooling_ = static_cast<int>(in.get_int());
    in.expect_end();
  }

 private:
  void reduce(int epoch) {
    const Optimizer& optimizer = model().optimizer();
    const double before = optimizer.learning_rate();
    if (before <= options_.min_lr) return;
    optimizer.set_learning_rate(std::max(before * options_.factor, options_.min_lr));
    cooling_ = options_.cooldown;
    wait_ = 0;
    if (options_.verbose == 0 || !model().strategy().extended().should_save_summary()) return;
    internal::print_out(str_cat("\nEpoch ", epoch + 1,
                                ": ReduceLROnPlateau reducing learning rate to ",
                                optimizer.learning_rate(), ".\n"));
  }

  const ReduceLROnPlateauOptions options_;
  internal::Monitor monitor_;
  double best_ = 0;
  int wait_ = 0;
  int cooling_ = 0;  // epochs left that are not counted
};

}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(ReduceLROnPlateauOptions options)
    : Callback(std::make_shared<ReduceLROnPlateauBase>(std::move(options))) {}

}  // namespace cohort::keras
