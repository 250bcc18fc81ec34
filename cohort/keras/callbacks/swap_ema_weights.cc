// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/swap_ema_weights.h"

#include <memory>
#include <string>
#include <string_view>

#include "cohort/keras/model.h"
#include "cohort/keras/optimizers/optimizer.h"

namespace cohort::keras {
namespace {

class SwapEMAWeightsBase final : public CallbackBase {
 public:
  explicit SwapEMAWeightsBase(SwapEMAWeightsOptions options) : options_(options) {}
  bool works_without_batches() const override { return true; }

  void on_train_begin() override { swap(false); }
  void on_epoch_begin(int) override { swap(false); }
  void on_epoch_end(int, Logs&) override {
    if (options_.swap_on_epoch) swap(true);
  }
  void on_test_begin() override { swap(true); }
  void on_test_end(Logs&) override { swap(false); }
  void on_predict_begin() override { swap(true); }
  void on_predict_end() override { swap(false); }
  void on_failure() override {
    if (optimizer().model_has_averages()) swap(false);
  }

  std::string save_state() override { return optimizer().model_has_averages() ? "in" : "out"; }
  void restore_state(std::string_view state) override {
    const bool are_in = state == "in";
    // In a new process they wait for a build, which would forget the note.
    if (are_in) optimizer().build(model().trainable_variables());
    optimizer().note_model_has_averages(are_in);
  }

 private:
  OptimizerBase& optimizer() const { return model().optimizer().base(); }
  void swap(bool into_model) { optimizer().swap_averages(into_model); }

  const SwapEMAWeightsOptions options_;
};

}  // namespace

SwapEMAWeights::SwapEMAWeights(SwapEMAWeightsOptions options)
    : Callback(std::make_shared<SwapEMAWeightsBase>(options)) {}

}  // namespace cohort::keras
