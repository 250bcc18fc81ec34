// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/early_stopping.h"

#include <bit>

#include "cohort/base/check.h"
#include "cohort/data/core/internal/state.h"
#include "cohort/keras/callbacks/monitor.h"
#include "cohort/keras/model.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::keras {

namespace {

class EarlyStoppingBase : public CallbackBase {
 public:
  explicit EarlyStoppingBase(EarlyStoppingOptions options)
      : options_(std::move(options)),
        monitor_("early_stopping", options_.monitor, options_.mode, options_.min_delta) {
    COHORT_CHECK_ARG(options_.patience >= 0, "[early_stopping] expected patience >= 0, got ",
                     options_.patience);
  }

  void on_train_begin() override {
    monitor_.begin(model());
    wait_ = 0;
    best_ = monitor_.worst();
    best_weights_.clear();
    stopped_epoch_.reset();
    best_epoch_.reset();
  }

  void on_epoch_end(int epoch, Logs& logs) override {
    if (epoch < options_.start_from_epoch) return;
    const std::optional<double> value = monitor_.read(logs, "fit does not stop early");
    if (!value) return;
    // A first value that is no improvement (NaN) is still the best there is to go back to.
    if (!best_epoch_) remember(epoch);
    ++wait_;
    if (monitor_.improves(*value, best_)) {
      best_ = *value;
      remember(epoch);
      if (!options_.baseline || monitor_.improves(*value, *options_.baseline)) wait_ = 0;
      return;
    }
    // As Keras: the first epoch never ends it.
    if (wait_ >= options_.patience && epoch > 0) {
      stopped_epoch_ = epoch;
      model().stop_training();
    }
  }

  void on_train_end() override {
    if (stopped_epoch_ && options_.verbose > 0) {
      print(str_cat("Epoch ", *stopped_epoch_ + 1, ": early stopping\n"));
    }
    if (!options_.restore_best_weights || best_weights_.empty()) return;
    if (options_.verbose > 0) {
      print(str_cat("Restoring model weights from the end of the best epoch: ", *best_epoch_ + 1,
                    ".\n"));
    }
    model().set_weights(best_weights_);
    best_weights_.clear();
  }

  std::string save_state() override {
    cohort::internal::data::StateWriter out;
    out.put_int(wait_);
    out.put_int(std::bit_cast<int64_t>(best_));
    out.put_int(best_epoch_.value_or(-1));
    out.put_int(stopped_epoch_.value_or(-1));
    out.put_int(static_cast<int64_t>(best_weights_.size()));
    for (const Tensor& weight : best_weights_) out.put_element(weight);
    return std::move(out).take();
  }
  void restore_state(std::string_view state) override {
    cohort::internal::data::StateReader in(state);
    const auto epoch_of = [](int64_t n) {
      return n < 0 ? std::nullopt : std::optional(static_cast<int>(n));
    };
    wait_ = static_cast<int>(in.get_int());
    best_ = std::bit_cast<double>(in.get_int());
    best_epoch_ = epoch_of(in.get_int());
    stopped_epoch_ = epoch_of(in.get_int());
    best_weights_.resize(static_cast<std::size_t>(in.get_count(in.bytes_left())));
    for (Tensor& weight : best_weights_) weight = in.get_element().tensor();
    in.expect_end();
  }

  std::optional<int> stopped_epoch() const { return stopped_epoch_; }
  std::optional<int> best_epoch() const { return best_epoch_; }

 private:
  static void print(const std::string& text) { internal::print_out(text); }

  void remember(int epoch) {
    best_epoch_ = epoch;
    if (options_.restore_best_weights) best_weights_ = model().get_weights();
  }

  const EarlyStoppingOptions options_;
  internal::Monitor monitor_;
  int wait_ = 0;
  double best_ = 0;
  std::vector<Tensor> best_weights_;
  std::optional<int> stopped_epoch_;
  std::optional<int> best_epoch_;
};

const EarlyStoppingBase& base_of(const Callback& callback) {
  return static_cast<const EarlyStoppingBase&>(callback.base());
}

}  // namespace

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) {
  callback_ = std::make_shared<EarlyStoppingBase>(std::move(options));
}

std::optional<int> EarlyStopping::stopped_epoch() const { return base_of(*this).stopped_epoch(); }
std::optional<int> EarlyStopping::best_epoch() const { return base_of(*this).best_epoch(); }

}  // namespace cohort::keras
