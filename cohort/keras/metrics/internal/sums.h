// SPDX-License-Identifier: Apache-2.0
//
// Sums of several numbers as the state of a metric, and what metrics with options share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/metrics/metric.h"

namespace cohort::keras::internal {

/// Adds to the calling replica's float64 component. Shapes: the variable's.
void add_tensor(const Variable& variable, const Tensor& x);
/// The same of a component on the CPU.
void add_numbers(const Variable& variable, const std::vector<double>& x);
/// The calling replica's component as it is, or the sum of all in cross-replica context; on the
/// CPU. Blocks: until the devices that have it are as far.
Tensor read_tensor(const Variable& variable);

/// Options with a name, if they have none.
template <class C>
C named(C options, const char* standard_name) {
  if (options.name.empty()) options.name = standard_name;
  return options;
}

/// The mean of a program's function.
std::shared_ptr<MetricBase> function_metric(
    std::function<Tensor(const Tensor&, const Tensor&)> function, std::string name,
    Direction direction);

}  // namespace cohort::keras::internal
