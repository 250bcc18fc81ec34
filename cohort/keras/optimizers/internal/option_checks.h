// SPDX-License-Identifier: Apache-2.0
//
// The ranges of the numbers that optimizers and schedules are told. Outside of them training goes
// on and learns nothing, or weights become NaN: that is said where the number is given. Internal.
//
//   const OptionChecks check("adam");
//   check.below_one("beta_1", o.beta_1);
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace cohort::keras::internal {

/// What an option of clipping does: 0 does nothing, as in Keras.
inline std::optional<double> clip_of(const std::optional<double>& option) {
  return option && *option > 0 ? option : std::nullopt;
}

/// Errors, of all but what is not given: InvalidArgument with owner, option, range and number; NaN
/// and infinities are in no range.
class OptionChecks {
 public:
  explicit OptionChecks(std::string owner) : owner_(std::move(owner)) {}

  void in_unit(const char* option, double value) const;  ///< [0, 1]
  void below_one(const char* option,
                 double value) const;  ///< [0, 1): the rule divides by 1 - value
  void above_zero(const char* option, const std::optional<double>& value) const;
  void not_negative(const char* option, const std::optional<double>& value) const;
  void not_positive(const char* option, double value) const;
  void finite(const char* option, double value) const;

  /// What all optimizers take.
  template <class Options>
  void common(const Options& o) const {
    one_clip(int{o.clipnorm.has_value()} + int{o.clipvalue.has_value()} +
             int{o.global_clipnorm.has_value()});
    not_negative("clipnorm", o.clipnorm);
    not_negative("clipvalue", o.clipvalue);
    not_negative("global_clipnorm", o.global_clipnorm);
    not_negative("weight_decay", o.weight_decay);
  }

 private:
  void check(bool is_in, const char* option, const char* range, double value) const;
  void one_clip(int clips) const;

  const std::string owner_;
};

}  // namespace cohort::keras::internal
