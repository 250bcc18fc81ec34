// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/option_checks.h"

#include <cmath>

#include "cohort/base/check.h"

namespace cohort::keras::internal {

void OptionChecks::check(bool is_in, const char* option, const char* range, double value) const {
  COHORT_CHECK_ARG(is_in && std::isfinite(value), "[", owner_, "] expected ", option, range,
                   ", got ", value);
}

void OptionChecks::one_clip(int clips) const {
  COHORT_CHECK_ARG(clips <= 1, "[", owner_,
                   "] expected at most one of clipnorm, clipvalue and global_clipnorm, got ",
                   clips);
}

void OptionChecks::in_unit(const char* option, double value) const {
  check(value >= 0 && value <= 1, option, " in [0, 1]", value);
}

void OptionChecks::below_one(const char* option, double value) const {
  check(value >= 0 && value < 1, option, " in [0, 1)", value);
}

void OptionChecks::above_zero(const char* option, const std::optional<double>& value) const {
  if (value) check(*value > 0, option, " above 0 and finite", *value);
}

void OptionChecks::not_negative(const char* option, const std::optional<double>& value) const {
  if (value) check(*value >= 0, option, " of 0 or more and finite", *value);
}

void OptionChecks::not_positive(const char* option, double value) const {
  check(value <= 0, option, " of 0 or less and finite", value);
}

void OptionChecks::finite(const char* option, double value) const {
  check(true, option, " to be finite", value);
}

}  // namespace cohort::keras::internal
