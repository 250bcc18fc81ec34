// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/lambda_callback.h"

namespace cohort::keras {

namespace {

class LambdaCallbackBase : public CallbackBase {
 public:
  explicit LambdaCallbackBase(LambdaCallbackOptions hooks) : hooks_(std::move(hooks)) {}

  void on_train_begin() override { call(hooks_.on_train_begin); }
  void on_train_end() override { call(hooks_.on_train_end); }
  void on_epoch_begin(int epoch) override { call(hooks_.on_epoch_begin, epoch); }
  void on_epoch_end(int epoch, Logs& logs) override { call(hooks_.on_epoch_end, epoch, logs); }
  void on_train_batch_begin(int64_t step) override { call(hooks_.on_train_batch_begin, step); }
  void on_train_batch_end(int64_t step, Logs& logs) override {
    call(hooks_.on_train_batch_end, step, logs);
  }
  bool works_without_batches() const override {
    return !hooks_.on_train_batch_begin && !hooks_.on_train_batch_end;
  }
  void on_test_begin() override { call(hooks_.on_test_begin); }
  void on_test_end(Logs& logs) override { call(hooks_.on_test_end, logs); }

 private:
  template <class F, class... A>
  static void call(const F& hook, A&... args) {
    if (hook) hook(args...);
  }
  const LambdaCallbackOptions hooks_;
};

}  // namespace

LambdaCallback::LambdaCallback(LambdaCallbackOptions options) {
  callback_ = std::make_shared<LambdaCallbackBase>(std::move(options));
}

}  // namespace cohort::keras
