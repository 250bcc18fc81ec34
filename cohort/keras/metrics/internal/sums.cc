// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/metrics/internal/sums.h"

#include "cohort/base/check.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {

void add_tensor(const Variable& variable, const Tensor& x) {
  const Tensor& own = variable.impl().leaf().tensor;
  own.add_(x.to(own.device()));
}

void add_numbers(const Variable& variable, const std::vector<double>& x) {
  const Tensor& own = variable.impl().leaf().tensor;
  COHORT_CHECK_ARG(own.numel() == static_cast<int64_t>(x.size()), "[metric] expected ", own.numel(),
                   " sums for \"", variable.name(), "\", got ", x.size());
  auto* sums = own.mutable_data_ptr<double>();
  for (std::size_t i = 0; i < x.size(); ++i) sums[i] += x[i];
}

Tensor read_tensor(const Variable& variable) {
  if (current_replica() < 0) return variable.value().to(at::kCPU);
  const Tensor& own = variable.impl().leaf().tensor;
  return own.is_cpu() ? own.clone() : own.to(at::kCPU);
}

}  // namespace cohort::keras::internal
