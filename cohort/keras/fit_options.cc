// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/fit_options.h"

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"

namespace cohort::keras {

ValidationFreq::ValidationFreq(int every) : every_(every) {
  COHORT_CHECK_ARG(every > 0, "[fit] expected validation_freq > 0, got ", every);
}

ValidationFreq::ValidationFreq(std::vector<int> epochs) : epochs_(std::move(epochs)) {
  for (const int epoch : epochs_) {
    COHORT_CHECK_ARG(epoch > 0, "[fit] expected epochs from 1 on in validation_freq, got ", epoch);
  }
}

bool ValidationFreq::is_due_after(int epoch) const {
  if (every_ > 0) return (epoch + 1) % every_ == 0;
  return std::ranges::find(epochs_, epoch + 1) != epochs_.end();
}

std::string ValidationFreq::to_string() const {
  return every_ > 0 ? str_cat("every ", every_) : bracketed(epochs_);
}

}  // namespace cohort::keras
