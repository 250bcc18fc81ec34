// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/metrics/internal/mean_state.h"

#include <ATen/ExpandUtils.h>

#include <numeric>

#include "cohort/base/check.h"
#include "cohort/keras/internal/align_ranks.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/variables/parameter_store.h"
#include "cohort/variables/variable_impl.h"

namespace cohort::keras::internal {
namespace {

/// Mean over the axes from `first` to the last one.
Tensor mean_from(const Tensor& x, int64_t first) {
  if (x.dim() <= first) return x;
  std::vector<int64_t> axes(static_cast<std::size_t>(x.dim() - first));
  std::iota(axes.begin(), axes.end(), first);
  return x.mean(axes);
}

}  // namespace

WeightedSum weighted_sum(const std::string& metric, const Tensor& values,
                         const Tensor& sample_weight) {
  Tensor v = values.to(kFloat64);
  if (v.numel() == 0) return {};
  if (!sample_weight.defined()) {
    const double count = v.dim() == 0 ? 1 : static_cast<double>(v.size(0));
    return {mean_from(v, 1).sum().item<double>(), count};
  }
  auto [aligned, weights] = align_ranks(v, sample_weight.to(kFloat64));
  aligned = mean_from(aligned, weights.dim());
  COHORT_CHECK_ARG(at::is_expandable_to(weights.sizes(), aligned.sizes()), "[", metric,
                   ".update_state] expected sample weights of shape ", bracketed(values.sizes()),
                   " or broadcasting to it, got ", bracketed(sample_weight.sizes()));
  weights = weights.expand(aligned.sizes());  // one weight for several values counts for each
  const Tensor weighted = mean_from(aligned * weights, 1);
  return {weighted.sum().item<double>(), mean_from(weights, 1).sum().item<double>()};
}

void add_to(const Variable& variable, double x) {
  *variable.impl().leaf().tensor.mutable_data_ptr<double>() += x;
}

double read_sum(const Variable& variable) {
  cohort::internal::variables::VariableImpl& impl = variable.impl();
  if (current_replica() >= 0) return *impl.leaf().tensor.const_data_ptr<double>();
  const cohort::internal::variables::ParameterStore* store = impl.store();
  const bool several = store != nullptr && store->layout().workers() > 1;
  if (several) return variable.value().item<double>();  // of all workers
  double sum = 0;
  for (int r = 0; r < impl.leaf_count(); ++r) {
    sum += *impl.leaf_of(r).tensor.const_data_ptr<double>();
  }
  return sum;
}

MeanMetric::MeanMetric(std::string name)
    : MetricBase(std::move(name)),
      total_(add_variable({}, "total")),
      count_(add_variable({}, "count")) {}

void MeanMetric::add(double weighted_sum, double weight) {
  add_to(total_, weighted_sum);
  add_to(count_, weight);
}

void MeanMetric::add_values(const Tensor& values, const Tensor& sample_weight) {
  const WeightedSum sum = weighted_sum(name(), values, sample_weight);
  add(sum.sum, sum.weight);
}

Tensor MeanMetric::result() {
  const double count = read_sum(count_);
  return scalar(count == 0 ? 0 : read_sum(total_) / count, kFloat64);
}

}  // namespace cohort::keras::internal
