// SPDX-License-Identifier: Apache-2.0
//
// What callbacks that watch one value share; internal.
#pragma once

#include <optional>
#include <string>

#include "cohort/keras/callbacks/logs.h"
#include "cohort/keras/model.h"

namespace cohort::keras::internal {

/// One value of the logs, and whether less or more of it is better.
class Monitor {
 public:
  /// `mode`: "min", "max", or "auto": losses are to fall, of a metric the model's metric is asked.
  /// Errors: InvalidArgument for another mode.
  Monitor(const char* callback, std::string name, const std::string& mode, double min_delta = 0);

  /// To be called before the rest: asks the model where mode is "auto".
  /// Errors: InvalidArgument that recommends a mode if the model does not know.
  void begin(const keras::Model& model);

  /// The value; nullopt if the logs lack it, the first time after begin() with a warning that names
  /// what there is, and says what happens `instead`.
  std::optional<double> read(const keras::Logs& logs, const char* instead);
  /// True if `value` is better than `than` by more than min_delta. NaN is never better.
  bool improves(double value, double than) const;
  /// Worse than every value.
  double worst() const;
  const std::string& name() const { return name_; }

 private:
  const char* callback_;
  std::string name_;
  bool automatic_;
  bool more_is_better_;
  double min_delta_ = 0;
  bool warned_ = false;
};

}  // namespace cohort::keras::internal
