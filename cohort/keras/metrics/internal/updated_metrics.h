// SPDX-License-Identifier: Apache-2.0
//
// Which metrics a step of a model updates. Internal.
#pragma once

#include <vector>

#include "cohort/keras/metrics/metric.h"

namespace cohort::keras::internal {

/// While it lives, metrics that are updated on this thread are listed, each once. Threads: bound to
/// one.
class [[nodiscard]] UpdatedMetrics {
 public:
  explicit UpdatedMetrics(std::vector<keras::Metric>& list);
  ~UpdatedMetrics();
  UpdatedMetrics(const UpdatedMetrics&) = delete;
  UpdatedMetrics& operator=(const UpdatedMetrics&) = delete;

  /// Where nobody lists, it does nothing.
  static void note(const keras::Metric& metric);

 private:
  std::vector<keras::Metric>* const outer_;
};

/// Adds those that the list has not.
void add_metrics(const std::vector<keras::Metric>& more, std::vector<keras::Metric>& list);

}  // namespace cohort::keras::internal
