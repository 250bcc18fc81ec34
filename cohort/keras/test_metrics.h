// SPDX-License-Identifier: Apache-2.0
//
// Metrics for tests of training.
#pragma once

#include "cohort/keras/metrics/metric.h"

namespace cohort::testing {

/// "rows": how many labels an epoch has seen, over all replicas.
struct RowCount : keras::MetricBase {
  RowCount() : MetricBase("rows"), count(add_variable({}, "count")) {}
  void update_state(const Tensor& y_true, const Tensor&, const Tensor&) override {
    count.assign_add(scalar(static_cast<double>(y_true.size(0)), kFloat64));
  }
  Tensor result() override { return count.value(); }

  const Variable count;
};

}  // namespace cohort::testing
