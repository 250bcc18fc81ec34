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

double number_of(const Tensor& scalar) {
  return scalar.is_cpu() ? *scalar.const_data_ptr<double>() : scalar.item<double>();
}

// What weighted_sum() reads.
struct SumTensors {
  Tensor sum, weight;  // no weight: `count`
  double count = 0;
};

// Of at least one value.
SumTensors sums_of(const std::string& metric, const Tensor& values, const Tensor& sample_weight) {
  const Tensor v = values.to(kFloat64);
  if (!sample_weight.defined()) {
    return {mean_from(v, 1).sum(), {}, v.dim() == 0 ? 1 : static_cast<double>(v.size(0))};
  }
  auto [aligned, weights] = align_ranks(v, sample_weight.to(kFloat64));
  aligned = mean_from(aligned, weights.dim());
  COHORT_CHECK_ARG(at::is_expandable_to(weights.sizes(), aligned.sizes()), "[", metric,
                   ".update_state] expected sample weights of shape ", bracketed(values.sizes()),
                   " or broadcasting to it, got ", bracketed(sample_weight.sizes()));
  weights = weights.expand(aligned.sizes());  // one weight for several values counts for each
  const Tensor weighted = mean_from(aligned * weights, 1);
  return {weighted.sum(), mean_from(weights, 1).sum()};
}

}  // namespace

WeightedSum weighted_sum(const std::string& metric, const Tensor& values,
                         const Tensor& sample_weight) {
  if (values.numel() == 0) return {};
  const SumTensors sums = sums_of(metric, values, sample_weight);
  return {sums.sum.item<double>(), sums.weight.defined() ? sums.weight.item<double>() : sums.count};
}

bool is_on_device(const Variable& variable) { return !variable.impl().leaf().tensor.is_cpu(); }

void add_to(const Variable& variable, double x) {
  const Tensor& own = variable.impl().leaf().tensor;
  if (!own.is_cpu()) {
    own.add_(x);
    return;
  }
  *own.mutable_data_ptr<double>() += x;
}

void add_to(const Variable& variable, const Tensor& x) {
  const Tensor& own = variable.impl().leaf().tensor;
  if (own.is_cpu()) return add_to(variable, x.item<double>());
  own.add_(x.to(own.device()));
}

double read_sum(const Variable& variable) {
  cohort::internal::variables::VariableImpl& impl = variable.impl();
  if (current_replica() >= 0) return number_of(impl.leaf().tensor);
  const cohort::internal::variables::ParameterStore* store = impl.store();
  const bool several = store != nullptr && store->layout().workers() > 1;
  if (several) return variable.value().item<double>();  // of all workers
  double sum = 0;
  for (int r = 0; r < impl.leaf_count(); ++r) {
    sum += number_of(impl.leaf_of(r).tensor);
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

bool MeanMetric::is_on_device() const { return internal::is_on_device(total_); }

void MeanMetric::add_values(const Tensor& values, const Tensor& sample_weight) {
  if (is_on_device()) {
    if (values.numel() == 0) return;
    const SumTensors sums = sums_of(name(), values, sample_weight);
    add_to(total_, sums.sum);
    sums.weight.defined() ? add_to(count_, sums.weight) : add_to(count_, sums.count);
    return;
  }
  const WeightedSum sum = weighted_sum(name(), values, sample_weight);
  add(sum.sum, sum.weight);
}

Tensor MeanMetric::result() {
  const double count = read_sum(count_);
  return scalar(count == 0 ? 0 : read_sum(total_) / count, kFloat64);
}

}  // namespace cohort::keras::internal
