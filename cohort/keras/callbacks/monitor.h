// SPDX-License-Identifier: Apache-2.0
//
// What callbacks that watch one value share; internal.
#pragma once

#include <optional>
#include <string>

#include "cohort/keras/callbacks/logs.h"

namespace cohort::internal {

/// One value of the logs, and whether less or more of it is better.
class Monitor {
 public:
  /// `mode`: "min", "max", or "auto", which goes by the name: accuracies, areas, precision and the
  /// like are to grow, all else is to fall. Errors: InvalidArgument for another mode.
  Monitor(const char* callback, std::string name, const std::string& mode, double min_delta = 0);

  /// The value; nullopt, with a warning that names what there is, if the logs lack it.
  std::optional<double> read(const keras::Logs& logs) const;
  /// True if `value` is better than `than` by more than min_delta. NaN is never better.
  bool improves(double value, double than) const;
  /// Worse than every value.
  double worst() const;
  const std::string& name() const { return name_; }

 private:
  const char* callback_;
  std::string name_;
  bool more_is_better_ = false;
  double min_delta_ = 0;
};

}  // namespace cohort::internal
