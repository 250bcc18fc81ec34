// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/activations.h"

#include <ATen/ops/celu.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softshrink.h>

#include <map>

#include "cohort/base/check.h"

namespace cohort::keras {

namespace activations {

Tensor relu(const Tensor& x, double negative_slope, double max_value, double threshold) {
  Tensor y;
  if (threshold == 0) {
    y = negative_slope == 0 ? x.relu() : at::leaky_relu(x, negative_slope);
  } else {
    const Tensor below = (x - threshold) * negative_slope;
    y = x.where(x > threshold, below);
  }
  return max_value >= 0 ? y.clamp_max(max_value) : y;
}

Tensor threshold(const Tensor& x, double threshold, double default_value) {
  return x.where(x > threshold, default_value);
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return at::leaky_relu(x, negative_slope);
}
Tensor elu(const Tensor& x, double alpha) { return at::elu(x, alpha); }
Tensor gelu(const Tensor& x, bool approximate) {
  return at::gelu(x, approximate ? "tanh" : "none");
}

Tensor softmax(const Tensor& x, int64_t axis) {
  COHORT_CHECK_ARG(x.dim() > 0, "[softmax] expected at least 1 axis, got a scalar");
  return x.softmax(axis);
}
Tensor log_softmax(const Tensor& x, int64_t axis) {
  COHORT_CHECK_ARG(x.dim() > 0, "[log_softmax] expected at least 1 axis, got a scalar");
  return x.log_softmax(axis);
}

}  // namespace activations

namespace {

using Function = Tensor (*)(const Tensor&);

Tensor sparse_plus(const Tensor& x) {
  const Tensor inside = (x + 1).square() * 0.25;
  return x.where(x >= 1, inside.where(x > -1, x * 0));
}

// The projection onto the simplex: sorts, and finds how many entries stay positive.
Tensor sparsemax(const Tensor& x) {
  const Tensor sorted = std::get<0>(x.sort(-1, true));
  const Tensor sums = sorted.cumsum(-1) - 1;
  const Tensor ranks = ones({x.size(-1)}, x.scalar_type()).cumsum(0);
  const Tensor support = (sorted * ranks > sums).sum(-1, true);
  const Tensor tau = sums.gather(-1, support - 1) / support.to(x.scalar_type());
  return (x - tau).clamp_min(0);
}

const std::map<std::string, Function>& table() {
  static const auto* functions = new std::map<std::string, Function>{
      {"celu", [](const Tensor& x) { return at::celu(x); }},
      {"elu", [](const Tensor& x) { return at::elu(x); }},
      {"exponential", [](const Tensor& x) { return x.exp(); }},
      {"gelu", [](const Tensor& x) { return at::gelu(x); }},
      {"glu", [](const Tensor& x) { return at::glu(x, -1); }},
      {"hard_shrink", [](const Tensor& x) { return x.hardshrink(0.5); }},
      {"hard_sigmoid", [](const Tensor& x) { return at::hardsigmoid(x); }},
      {"hard_silu", [](const Tensor& x) { return at::hardswish(x); }},
      {"hard_swish", [](const Tensor& x) { return at::hardswish(x); }},
      {"hard_tanh", [](const Tensor& x) { return at::hardtanh(x); }},
      {"leaky_relu", [](const Tensor& x) { return at::leaky_relu(x, 0.2); }},
      {"linear", nullptr},
      {"log_sigmoid", [](const Tensor& x) { return at::log_sigmoid(x); }},
      {"log_softmax", [](const Tensor& x) { return activations::log_softmax(x); }},
      {"mish", [](const Tensor& x) { return at::mish(x); }},
      {"relu", [](const Tensor& x) { return x.relu(); }},
      {"relu6", [](const Tensor& x) { return x.clamp(0, 6); }},
      {"selu", [](const Tensor& x) { return at::selu(x); }},
      {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }},
      {"silu", [](const Tensor& x) { return at::silu(x); }},
      {"soft_shrink", [](const Tensor& x) { return at::softshrink(x, 0.5); }},
      {"softmax", [](const Tensor& x) { return activations::softmax(x); }},
      {"softplus", [](const Tensor& x) { return at::softplus(x); }},
      {"softsign", [](const Tensor& x) -> Tensor { return x / (x.abs() + 1); }},
      {"sparse_plus", sparse_plus},
      {"sparse_sigmoid", [](const Tensor& x) -> Tensor { return ((x + 1) * 0.5).clamp(0, 1); }},
      {"sparsemax", sparsemax},
      {"squareplus", [](const Tensor& x) -> Tensor { return ((x.square() + 4).sqrt() + x) * 0.5; }},
      {"swish", [](const Tensor& x) { return at::silu(x); }},
      {"tanh", [](const Tensor& x) { return x.tanh(); }},
      {"tanh_shrink", [](const Tensor& x) -> Tensor { return x - x.tanh(); }},
  };
  return *functions;
}

}  // namespace

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const auto& [name, function] : table()) names.push_back(name);
  return names;
}

ActivationFunction::ActivationFunction(const char* name) : ActivationFunction(std::string(name)) {}

ActivationFunction::ActivationFunction(const std::string& name) : name_(name) {
  const auto found = table().find(name);
  COHORT_CHECK_ARG(found != table().end(), "[activation] expected one of ",
                   join(activation_names(), ", "), ", got ", name);
  is_relu_ = name == "relu";
  if (found->second != nullptr) fn_ = found->second;
}

Config ActivationFunction::serialize() const {
  if (own_ == nullptr) return name_;
  throw Unimplemented(
      "[activation.get_config] expected an activation with a name of Keras, got a function, which "
      "no config can hold");
}

ActivationFunction ActivationFunction::deserialize(const Config& config) {
  if (config.is_null()) return {};
  if (config.is_object()) return config.text("config");  // Keras's form of a function
  return config.text();
}

}  // namespace cohort::keras
