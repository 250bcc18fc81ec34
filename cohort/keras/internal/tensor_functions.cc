// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/tensor_functions.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "cohort/base/check.h"
#include "cohort/keras/dtype_policy.h"

namespace cohort::keras::internal {
namespace {

// An axis, a list of them, or all where the option is null.
std::vector<int64_t> axes_told(const Config& options, const char* name, int64_t rank) {
  const Config* given = options.find(name);
  std::vector<int64_t> axes;
  if (given == nullptr || given->is_null()) {
    axes.resize(static_cast<std::size_t>(rank));
    std::iota(axes.begin(), axes.end(), int64_t{0});
  } else if (given->is_list()) {
    for (const Config& axis : given->list()) axes.push_back(axis.integer());
  } else {
    axes.push_back(given->integer());
  }
  return axes;
}

bool keeps_axes(const Config& options) {
  const Config* given = options.find("keepdims");
  return given != nullptr && given->boolean();
}

double number_told(const Config& options, const char* name, double standard) {
  const Config* given = options.find(name);
  return given == nullptr || given->is_null() ? standard : given->number();
}

void check_no_initial(const Config& options) {
  const Config* given = options.find("initial");
  if (given == nullptr || given->is_null()) return;
  throw Unimplemented(
      str_cat("[Functional] expected a maximum or minimum without initial, got ", *given));
}

Tensor function_mean(const std::vector<Tensor>& x, const Config& options) {
  // As in Keras: of whole numbers a floating one.
  const Tensor values = x[0].is_floating_point() ? x[0] : x[0].to(floatx());
  return at::mean(values, axes_told(options, "axis", x[0].dim()), keeps_axes(options));
}

Tensor function_sum(const std::vector<Tensor>& x, const Config& options) {
  const DType own = x[0].scalar_type();
  // As in Keras: small integers are added in 32 bits.
  const bool is_small = c10::isIntegralType(own, /*includeBool=*/true) && c10::elementSize(own) < 4;
  const DType dtype = is_small ? kInt32 : own;
  return at::sum(x[0], axes_told(options, "axis", x[0].dim()), keeps_axes(options), dtype);
}

Tensor function_max(const std::vector<Tensor>& x, const Config& options) {
  check_no_initial(options);
  return at::amax(x[0], axes_told(options, "axis", x[0].dim()), keeps_axes(options));
}

Tensor function_min(const std::vector<Tensor>& x, const Config& options) {
  check_no_initial(options);
  return at::amin(x[0], axes_told(options, "axis", x[0].dim()), keeps_axes(options));
}

Tensor function_reshape(const std::vector<Tensor>& x, const Config& options) {
  Shape shape;
  for (const Config& size : options.at("newshape").list()) {
    shape.push_back(size.is_null() ? -1 : size.integer());
  }
  return x[0].reshape(shape);
}

Tensor function_transpose(const std::vector<Tensor>& x, const Config& options) {
  std::vector<int64_t> axes = axes_told(options, "axes", x[0].dim());
  const Config* given = options.find("axes");
  if (given == nullptr || given->is_null()) std::reverse(axes.begin(), axes.end());
  return x[0].permute(axes);
}

Tensor function_squeeze(const std::vector<Tensor>& x, const Config& options) {
  const Config* given = options.find("axis");
  if (given == nullptr || given->is_null()) return x[0].squeeze();
  return x[0].squeeze(axes_told(options, "axis", x[0].dim()));
}

// These two LibTorch computes of values alone: where there are only shapes, others have the same.
Tensor function_relu(const std::vector<Tensor>& x, const Config&) {
  return x[0].is_meta() ? x[0].clamp_min(0) : x[0].relu();
}

Tensor function_where(const std::vector<Tensor>& x, const Config&) {
  const Tensor condition = x[0].to(kBool);
  if (condition.is_meta()) return (x[1] + x[2]) + condition;
  return at::where(condition, x[1], x[2]);
}

constexpr const char* kFunctionsOfNn = "keras.src.ops.nn";
constexpr const char* kFunctionsOfNumpy = "keras.src.ops.numpy";
constexpr const char* kFunctionsOfCore = "keras.src.ops.core";

const std::map<std::string, TensorFunction>& tensor_functions() {
  using C = const Config&;
  using X = const std::vector<Tensor>&;
  static const auto* functions = new std::map<std::string, TensorFunction>{
      {"Cast",
       {kFunctionsOfCore, 1,
        [](X x, C o) { return x[0].to(ConfigValue<DType>::read(o.at("dtype"))); }}},
      {"Concatenate",
       {kFunctionsOfNumpy, 0, [](X x, C o) { return at::cat(x, o.at("axis").integer()); }}},
      {"Elu",
       {kFunctionsOfNn, 1, [](X x, C o) { return at::elu(x[0], number_told(o, "alpha", 1)); }}},
      {"Exp", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].exp(); }}},
      {"ExpandDims",
       {kFunctionsOfNumpy, 1, [](X x, C o) { return x[0].unsqueeze(o.at("axis").integer()); }}},
      {"Gelu",
       {kFunctionsOfNn, 1,
        [](X x, C o) { return at::gelu(x[0], o.boolean("approximate") ? "tanh" : "none"); }}},
      {"LeakyRelu",
       {kFunctionsOfNn, 1,
        [](X x, C o) { return at::leaky_relu(x[0], number_told(o, "negative_slope", 0.2)); }}},
      {"Log", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].log(); }}},
      {"LogSoftmax",
       {kFunctionsOfNn, 1, [](X x, C o) { return x[0].log_softmax(o.at("axis").integer()); }}},
      {"Max", {kFunctionsOfNumpy, 1, function_max}},
      {"Maximum", {kFunctionsOfNumpy, 2, [](X x, C) { return at::maximum(x[0], x[1]); }}},
      {"Mean", {kFunctionsOfNumpy, 1, function_mean}},
      {"Min", {kFunctionsOfNumpy, 1, function_min}},
      {"Minimum", {kFunctionsOfNumpy, 2, [](X x, C) { return at::minimum(x[0], x[1]); }}},
      {"Relu", {kFunctionsOfNn, 1, function_relu}},
      {"Reshape", {kFunctionsOfNumpy, 1, function_reshape}},
      {"Sigmoid", {kFunctionsOfNn, 1, [](X x, C) { return x[0].sigmoid(); }}},
      {"Silu", {kFunctionsOfNn, 1, [](X x, C) { return at::silu(x[0]); }}},
      {"Softmax",
       {kFunctionsOfNn, 1, [](X x, C o) { return x[0].softmax(o.at("axis").integer()); }}},
      {"Softplus", {kFunctionsOfNn, 1, [](X x, C) { return at::softplus(x[0]); }}},
      {"Sqrt", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].sqrt(); }}},
      {"Square", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].square(); }}},
      {"Squeeze", {kFunctionsOfNumpy, 1, function_squeeze}},
      {"Stack",
       {kFunctionsOfNumpy, 0, [](X x, C o) { return at::stack(x, o.at("axis").integer()); }}},
      {"Sum", {kFunctionsOfNumpy, 1, function_sum}},
      {"Tanh", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].tanh(); }}},
      {"Transpose", {kFunctionsOfNumpy, 1, function_transpose}},
      {"Where", {kFunctionsOfNumpy, 3, function_where}},
  };
  return *functions;
}

}  // namespace

const TensorFunction* find_tensor_function(const std::string& name) {
  const auto found = tensor_functions().find(name);
  return found == tensor_functions().end() ? nullptr : &found->second;
}

std::vector<std::string> tensor_function_names() {
  std::vector<std::string> names;
  for (const auto& entry : tensor_functions()) names.push_back(entry.first);
  return names;
}

}  // namespace cohort::keras::internal
