// SPDX-License-Identifier: Apache-2.0
//
// LambdaCallback: hooks as functions, for what needs no class.
//
//   keras::LambdaCallback({.on_epoch_end = [](int epoch, keras::Logs& logs) { ... }})
#pragma once

#include <cstdint>
#include <functional>

#include "cohort/keras/callbacks/callback.h"

namespace cohort::keras {

/// What is empty is not called. The arguments are those of CallbackBase.
struct LambdaCallbackOptions {
  std::function<void()> on_train_begin = {};
  std::function<void()> on_train_end = {};
  std::function<void(int epoch)> on_epoch_begin = {};
  std::function<void(int epoch, Logs& logs)> on_epoch_end = {};
  std::function<void(int64_t step)> on_train_batch_begin = {};
  std::function<void(int64_t step, Logs& logs)> on_train_batch_end = {};
  std::function<void()> on_test_begin = {};
  std::function<void(Logs& logs)> on_test_end = {};
};

/// TF: keras.callbacks.LambdaCallback.
class LambdaCallback : public Callback {
 public:
  explicit LambdaCallback(LambdaCallbackOptions options);
};

}  // namespace cohort::keras
