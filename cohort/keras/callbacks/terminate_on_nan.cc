// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/terminate_on_nan.h"

#include <cmath>
#include <memory>

#include "cohort/base/check.h"
#include "cohort/keras/model.h"
#include "cohort/keras/progress_bar.h"

namespace cohort::keras {
namespace {

class Impl final : public CallbackBase {
 public:
  explicit Impl(TerminateOnNaNOptions options) : options_(options) {}
  bool works_without_batches() const override { return true; }
  void on_train_batch_end(int64_t step, Logs& logs) override {
    if (!logs.contains("loss")) return;
    const double loss = logs.number("loss");
    if (std::isfinite(loss)) return;
    COHORT_CHECK_STATE(!options_.raise_error, "[terminate_on_nan] expected a finite loss, got ",
                       loss, " after batch ", step);
    internal::print_out(str_cat("Batch ", step, ": Invalid loss, terminating training\n"));
    model().stop_training();
  }

 private:
  const TerminateOnNaNOptions options_;
};

}  // namespace

TerminateOnNaN::TerminateOnNaN(TerminateOnNaNOptions options)
    : Callback(std::make_shared<Impl>(options)) {}

}  // namespace cohort::keras
