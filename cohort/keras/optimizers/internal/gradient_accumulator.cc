// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/gradient_accumulator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::internal {

GradientAccumulator::GradientAccumulator(std::vector<Variable> variables, int replicas)
    : variables_(std::move(variables)), sums_(static_cast<std::size_t>(replicas)) {
  for (Sums& sums : sums_) sums.tensors.resize(variables_.size());
}

GradientAccumulator::Sums& GradientAccumulator::own() {
  return sums_[static_cast<std::size_t>(std::max(0, current_replica()))];
}

void GradientAccumulator::store(Sums& sums, std::size_t variable, const Tensor& x) {
  VariableImpl& impl = variables_[variable].impl();
  if (impl.arena() == nullptr) {
    sums.tensors[variable] = x.to(impl.description().dtype, /*non_blocking=*/false, /*copy=*/true);
    return;
  }
  if (!sums.lease) sums.lease = std::make_shared<GradientLease>();
  sums.tensors[variable] = sums.lease->place(impl);
  sums.tensors[variable].copy_(x);
}

void GradientAccumulator::add(std::size_t variable, const Gradient& gradient) {
  const at::NoGradGuard no_grad;
  const Tensor x = gradient.as_tensor();
  COHORT_CHECK_ARG(shape_of(x) == variables_[variable].shape(),
                   "[optimizer.apply_gradients] expected a gradient of shape ",
                   bracketed(variables_[variable].shape()), " for \"", variables_[variable].name(),
                   "\", got ", bracketed(x.sizes()));
  Sums& sums = own();
  if (sums.tensors[variable].defined()) {
    sums.tensors[variable].add_(x);
  } else {
    store(sums, variable, x);
  }
}

Gradients GradientAccumulator::take(int steps) {
  const at::NoGradGuard no_grad;
  Sums& sums = own();
  std::vector<GradientAndVariable> pairs;
  pairs.reserve(variables_.size());
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    if (!sums.tensors[v].defined()) continue;
    sums.tensors[v].div_(steps);
    pairs.push_back({std::exchange(sums.tensors[v], Tensor()), variables_[v]});
  }
  // Others read the buffer until they have applied it: the next sums go into another one.
  return {std::move(pairs), std::exchange(sums.lease, nullptr)};
}

bool GradientAccumulator::forget_after_failure() {
  const ReplicaGroup* group = current_replica_group();
  if (group == nullptr) return false;
  Sums& sums = own();
  const std::optional<uint64_t> before = std::exchange(sums.failed_runs, group->failed_runs());
  if (!before || *before == group->failed_runs()) return false;
  std::fill(sums.tensors.begin(), sums.tensors.end(), Tensor());
  sums.lease.reset();
  return true;
}

Tensor GradientAccumulator::value(std::size_t variable) const {
  const at::NoGradGuard no_grad;
  Tensor sum = zeros(variables_[variable].shape(), variables_[variable].dtype());
  for (const Sums& sums : sums_) {
    if (sums.tensors[variable].defined()) sum.add_(sums.tensors[variable]);
  }
  return sum;
}

void GradientAccumulator::assign(std::size_t variable, const Tensor& x) {
  const at::NoGradGuard no_grad;
  for (Sums& sums : sums_) sums.tensors[variable] = Tensor();
  store(sums_.front(), variable, x);
}

}  // namespace cohort::internal
