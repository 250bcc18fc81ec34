// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/optimizers/internal/gradient_accumulator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/checkpoint/saving_group.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/parameter_store.h"

namespace cohort::keras::internal {

GradientAccumulator::GradientAccumulator(std::vector<Variable> variables, int replicas)
    : variables_(std::move(variables)), sums_(static_cast<std::size_t>(replicas)) {
  for (Sums& sums : sums_) sums.tensors.resize(variables_.size());
}

GradientAccumulator::Sums& GradientAccumulator::own() {
  return sums_[static_cast<std::size_t>(std::max(0, current_replica()))];
}

void GradientAccumulator::store(Sums& sums, std::size_t variable, const Tensor& x) {
  cohort::internal::variables::VariableImpl& impl = variables_[variable].impl();
  if (!sums.lease) sums.lease = std::make_shared<cohort::internal::variables::GradientLease>();
  sums.tensors[variable] = sums.lease->place(impl);
  sums.tensors[variable].copy_(x);
}

void GradientAccumulator::add(std::size_t variable, const Gradient& gradient) {
  const at::NoGradGuard no_grad;
  Sums& sums = own();
  if (gradient.is_sparse() && !sums.tensors[variable].defined()) {
    return add_rows(sums, variable, gradient.slices());
  }
  const Tensor x = gradient.as_tensor();
  COHORT_CHECK_ARG(shape_of(x) == variables_[variable].shape(),
                   "[optimizer.apply_gradients] expected a gradient of shape ",
                   bracketed(variables_[variable].shape()), " for \"", variables_[variable].name(),
                   "\", got ", bracketed(x.sizes()));
  if (const auto before = sums.rows.extract(variable); !before.empty()) {
    store(sums, variable, before.mapped().to_dense(variables_[variable].shape()));
  }
  if (sums.tensors[variable].defined()) {
    sums.tensors[variable].add_(x);
  } else {
    store(sums, variable, x);
  }
}

void GradientAccumulator::add_rows(Sums& sums, std::size_t variable, const IndexedSlices& slices) {
  const Variable& of = variables_[variable];
  of.impl().check_slices("[optimizer.apply_gradients] ", slices);
  cohort::internal::variables::RowSum more =
      cohort::internal::variables::sum_rows(slices, of.dtype());
  const auto [place, is_new] = sums.rows.try_emplace(variable);
  if (is_new) {
    place->second = std::move(more);
    return;
  }
  const cohort::internal::variables::RowSum* const both[] = {&place->second, &more};
  place->second = cohort::internal::variables::sum_rows(both, 0, of.shape()[0]);
}

Gradients GradientAccumulator::take(int steps) {
  const at::NoGradGuard no_grad;
  Sums& sums = own();
  std::vector<GradientAndVariable> pairs;
  pairs.reserve(variables_.size());
  for (std::size_t v = 0; v < variables_.size(); ++v) {
    if (auto rows = sums.rows.extract(v); !rows.empty()) {
      pairs.push_back({std::move(rows.mapped()).to_slices(variables_[v].shape()), variables_[v]});
      pairs.back().gradient.slices().values.div_(steps);
    }
    if (!sums.tensors[v].defined()) continue;
    sums.tensors[v].div_(steps);
    pairs.push_back({std::exchange(sums.tensors[v], Tensor()), variables_[v]});
  }
  // Others read the buffer until they have applied it: the next sums go into another one.
  return {std::move(pairs), std::exchange(sums.lease, nullptr)};
}

bool GradientAccumulator::forget_after_failure() {
  const cohort::internal::runtime::ReplicaGroup* group =
      cohort::internal::runtime::current_replica_group();
  if (group == nullptr) return false;
  Sums& sums = own();
  const std::optional<uint64_t> before = std::exchange(sums.failed_runs, group->failed_runs());
  if (!before || *before == group->failed_runs()) return false;
  std::fill(sums.tensors.begin(), sums.tensors.end(), Tensor());
  sums.rows.clear();
  sums.lease.reset();
  return true;
}

Tensor GradientAccumulator::value_of_all(std::size_t variable) const {
  const Tensor mine = value_here(variable).to(at::kCPU);
  const cohort::internal::variables::ParameterStore* const store =
      variables_[variable].impl().store();
  const auto workers = store == nullptr ? nullptr : store->saving_group();
  if (workers == nullptr) return mine;
  const at::NoGradGuard no_grad;
  Tensor sum = zeros(shape_of(mine), mine.scalar_type());
  workers->together("optimizer.gradient_accumulator", [&] {
    for (const std::string& bytes :
         workers->gather({static_cast<const char*>(mine.const_data_ptr()), mine.nbytes()})) {
      Tensor one = empty(shape_of(mine), mine.scalar_type());
      std::memcpy(one.mutable_data_ptr(), bytes.data(), bytes.size());
      sum.add_(one);
    }
  });
  return sum;
}

Tensor GradientAccumulator::value_here(std::size_t variable) const {
  const at::NoGradGuard no_grad;
  Tensor sum = zeros(variables_[variable].shape(), variables_[variable].dtype());
  for (const Sums& sums : sums_) {
    if (sums.tensors[variable].defined()) sum.add_(sums.tensors[variable]);
    const auto rows = sums.rows.find(variable);
    if (rows != sums.rows.end()) sum.add_(rows->second.to_dense(variables_[variable].shape()));
  }
  return sum;
}

void GradientAccumulator::assign(std::size_t variable, const Tensor& x) {
  const at::NoGradGuard no_grad;
  for (Sums& sums : sums_) {
    sums.tensors[variable] = Tensor();
    sums.rows.erase(variable);
    sums.failed_runs.reset();  // what is set now, no run before has to do with
  }
  const cohort::internal::variables::ParameterStore* const home =
      variables_[variable].impl().store();
  if (home == nullptr || home->layout().worker() == 0) store(sums_.front(), variable, x);
}

}  // namespace cohort::keras::internal
