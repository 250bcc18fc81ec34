// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/callback.h"

#include <algorithm>
#include <exception>

#include "cohort/base/logging.h"

namespace cohort::keras::internal {

CallbackList::CallbackList(const std::vector<keras::Callback>& callbacks, keras::Model& model) {
  for (const keras::Callback& callback : callbacks) add(callback, model);
}

void CallbackList::add(const keras::Callback& callback, keras::Model& model) {
  callback.base().set_model(&model);
  callbacks_.push_back(callback);
}

void CallbackList::tell_of_failure() const noexcept {
  for (const keras::Callback& callback : callbacks_) {
    try {
      callback.base().on_failure();
    } catch (const std::exception& error) {
      COHORT_LOG(kWarning, "[on_failure] ", error.what());
    } catch (...) {
      COHORT_LOG(kWarning, "[on_failure] a callback threw something else than an exception");
    }
  }
}

bool CallbackList::may_print_in_batches() const {
  return std::any_of(callbacks_.begin(), callbacks_.end(), [](const keras::Callback& callback) {
    return callback.base().may_print_in_batches();
  });
}

}  // namespace cohort::keras::internal
