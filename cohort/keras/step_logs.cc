// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/step_logs.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "cohort/base/check.h"

namespace cohort::keras::internal {

using keras::Logs;
using torch::autograd::Node;

namespace {

// Of LibTorch's functions.
constexpr std::array<std::string_view, 23> kLinear = {
    "Add",      "Alias", "Cat",          "Clone",      "Copy",      "Expand", "MaskedFill", "Mean",
    "NanToNum", "Neg",   "ReshapeAlias", "Rsub",       "Select",    "Slice",  "Squeeze",    "Stack",
    "Sub",      "Sum",   "ToCopy",       "UnsafeView", "Unsqueeze", "View",   "Where"};

// Finds in a value's graph whether it was computed from shares, and how. Only numbers lie between
// a share, which is one, and what is made of it: the model's graph is not walked.
class Origin {
 public:
  explicit Origin(const cohort::internal::strategy::LossShares& shares) : shares_(shares) {}

  FromShares of(const Node& node) {
    if (shares_.made_by(node)) return FromShares::kSum;
    if (const auto known = known_.find(&node); known != known_.end()) return known->second;
    if (depth_ == kDeepest) return FromShares::kNot;
    ++depth_;
    const FromShares found = by_inputs(node);
    --depth_;
    return known_[&node] = found;
  }

 private:
  static constexpr int kDeepest = 256;

  static bool is_number(const torch::autograd::Edge& edge) {
    if (!edge.is_valid() || edge.input_nr >= edge.function->num_inputs()) return false;
    const auto sizes = edge.function->input_metadata(edge.input_nr).shape_as_dim_vector();
    return std::all_of(sizes.begin(), sizes.end(), [](const auto& size) { return size == 1; });
  }

  FromShares by_inputs(const Node& node) {
    std::vector<FromShares> inputs;
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      inputs.push_back(is_number(edge) ? of(*edge.function) : FromShares::kNot);
    }
    const auto count = [&](FromShares what) { return std::ranges::count(inputs, what); };
    if (count(FromShares::kOther) > 0) return FromShares::kOther;
    if (count(FromShares::kSum) == 0) return FromShares::kNot;
    const std::string name = node.name();
    const std::string function = name.substr(0, name.find("Backward"));
    bool linear = std::ranges::count(kLinear, function) > 0;
    if (function == "Mul") linear = count(FromShares::kSum) == 1;
    if (function == "Div") linear = inputs.size() < 2 || inputs[1] == FromShares::kNot;
    return linear ? FromShares::kSum : FromShares::kOther;
  }

  const cohort::internal::strategy::LossShares& shares_;
  std::map<const Node*, FromShares> known_;
  int depth_ = 0;
};

/// NaN is NaN: whoever watches for it wants to see it.
bool same(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.isclose(b, 0, 0, /*equal_nan=*/true).all().item<bool>();
}

bool same_on_all(std::span<const Tensor> values) {
  return std::all_of(values.begin(), values.end(),
                     [&](const Tensor& value) { return same(value, values[0]); });
}

double number_of(const Tensor& t) { return t.item<double>(); }

// One number times each replica's share: a loss that the step weighs. Where all shares are equal
// this says nothing, and where they are multiplied by the number of replicas nor does it: the mean
// of a replica's own rows is that, too. Replicas without rows have zeros.
bool is_multiple_of(std::span<const double> shares, std::span<const double> numbers) {
  constexpr double kRounding = 4e-7;
  const auto near = [](double a, double b) {
    return std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
  };
  std::vector<std::size_t> there;
  bool differ = false;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    if ((shares[r] == 0) != (numbers[r] == 0)) return false;
    if (shares[r] == 0) continue;
    there.push_back(r);
    const std::size_t first = there.front();
    if (!near(numbers[r] * shares[first], numbers[first] * shares[r])) return false;
    differ = differ || !near(shares[r], shares[first]);
  }
  if (!differ) return false;
  const double share = shares[there.front()];
  const double number = numbers[there.front()];
  return !near(number, static_cast<double>(there.size()) * share) &&
         !near(number, static_cast<double>(shares.size()) * share);
}

// For values without a graph, such as copies, numbers, and all of a step that does not record: one
// of the shares, or a multiple of it, or the sum or mean of some of them, the same ones on all
// replicas.
bool is_of_shares(std::span<const Tensor> values, std::span<const LoggedStep> steps) {
  constexpr std::size_t kMostShares = 6;
  const std::size_t count = steps[0].shares.values().size();
  std::vector<double> numbers;
  std::vector<std::vector<double>> shares;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    const std::vector<Tensor>& mine = steps[r].shares.values();
    if (values[r].numel() != 1 || mine.size() != count) return false;
    numbers.push_back(number_of(values[r]));
    shares.emplace_back();
    for (const Tensor& share : mine) shares.back().push_back(number_of(share));
  }
  const auto fits = [&](unsigned chosen, double divisor) {
    for (std::size_t r = 0; r < numbers.size(); ++r) {
      double sum = 0, size = 0;
      for (std::size_t k = 0; k < count; ++k) {
        if ((chosen >> k & 1U) == 0) continue;
        sum += shares[r][k];
        size += std::abs(shares[r][k]);
      }
      constexpr double kRounding = 4e-7;
      if (!(std::abs(numbers[r] * divisor - sum) <= kRounding * size)) return false;
    }
    return true;
  };
  const unsigned end = 1U << std::min(count, kMostShares);
  for (unsigned chosen = 1; chosen < end; ++chosen) {
    if (fits(chosen, 1) || fits(chosen, std::popcount(chosen))) return true;
  }
  for (std::size_t k = 0; k < std::min(count, kMostShares); ++k) {
    std::vector<double> own;
    for (const auto& of_replica : shares) own.push_back(of_replica[k]);
    if (is_multiple_of(own, numbers)) return true;
  }
  return false;
}

Tensor mean_of(std::span<const Tensor> values, std::span<const LoggedStep> steps) {
  Tensor sum;
  double weights = 0;
  for (std::size_t r = 0; r < steps.size(); ++r) {
    if (steps[r].rows == 0) continue;  // the mean of nothing
    const double weight = steps[r].rows < 0 ? 1 : static_cast<double>(steps[r].rows);
    const bool whole = !values[r].is_floating_point() && !values[r].is_complex();
    const Tensor part = (whole ? values[r].to(kFloat64) : values[r]) * weight;
    sum = sum.defined() ? sum + part : part;
    weights += weight;
  }
  return sum / weights;
}

Tensor put_together(const char* operation, const std::string& name,
                    std::span<const LoggedStep> steps) {
  std::vector<Tensor> values;
  bool sums = false, others = false;
  for (const LoggedStep& step : steps) {
    values.push_back(step.logs.value(name));
    if (!values.back().defined()) return {};
    if (!values.back().is_cpu()) values.back() = values.back().to(at::kCPU);  // of several devices
    const FromShares from = step.from_shares[step.logs.index(name)];
    sums = sums || from == FromShares::kSum;
    others = others || from == FromShares::kOther;
  }
  if (others) {
    COHORT_CHECK_ARG(same_on_all(values), "[", operation, "] expected \"", name,
                     "\" to be a sum or a multiple of losses, got another function of what "
                     "compute_loss returned, which on ",
                     steps.size(),
                     " replicas is each one's share of the loss: log it as a function of the whole "
                     "loss, {\"",
                     name,
                     "\", [mean] { return f(mean.result()); }}, with a keras::Mean that the step "
                     "updates");
    return values[0];
  }
  if (!sums && !is_of_shares(values, steps)) return mean_of(values, steps);
  Tensor sum = values[0];
  for (std::size_t r = 1; r < values.size(); ++r) sum = sum + values[r];
  return sum;
}

}  // namespace

void settle(LoggedStep& step) {
  Origin origin(step.shares);
  step.from_shares.assign(step.logs.size(), FromShares::kNot);
  Logs settled = step.logs;
  for (std::size_t i = 0; i < step.logs.size(); ++i) {
    const std::string& name = step.logs.name(i);
    if (step.logs.is_read_anew(name)) continue;
    const Tensor value = step.logs.value(name);
    if (!value.defined() || !value.grad_fn()) continue;
    step.from_shares[i] = origin.of(*value.grad_fn());
    settled.set(name, value.detach());
  }
  step.logs = std::move(settled);
}

Logs over_replicas(const char* operation, std::span<const LoggedStep> steps) {
  Logs out = steps[0].logs;
  if (steps.size() == 1) return out;
  for (const std::string& name : out.names()) {
    if (!out.is_read_anew(name)) out.set(name, put_together(operation, name, steps));
  }
  return out;
}

}  // namespace cohort::keras::internal
