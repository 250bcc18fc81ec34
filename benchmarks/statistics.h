// SPDX-License-Identifier: Apache-2.0
//
// Order statistics of samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace cohort::bench {

/// The value below which the fraction q of the values lies, between two values linearly
/// interpolated; NaN for none.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double place = q * (values.size() - 1);
  const std::size_t below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - below) * (values[above] - values[below]);
}

inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

/// A median with the range that holds the middle 80 % of the values.
struct Spread {
  double p10 = std::numeric_limits<double>::quiet_NaN();
  double p50 = std::numeric_limits<double>::quiet_NaN();
  double p90 = std::numeric_limits<double>::quiet_NaN();
  bool known() const { return !std::isnan(p50); }
};

inline Spread spread(const std::vector<double>& values) {
  return {quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9)};
}

}  // namespace cohort::bench
