// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/tensor_functions.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/le.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

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

// LibTorch takes no axes for all of them; in Keras they are none.
bool is_along_none(const Config& options) {
  const Config* given = options.find("axis");
  return given != nullptr && given->is_list() && given->list().empty();
}

Tensor function_mean(const std::vector<Tensor>& x, const Config& options) {
  // As in Keras: of whole numbers a floating one.
  const Tensor values = x[0].is_floating_point() ? x[0] : x[0].to(floatx());
  if (is_along_none(options)) return values;
  return at::mean(values, axes_told(options, "axis", x[0].dim()), keeps_axes(options));
}

Tensor function_sum(const std::vector<Tensor>& x, const Config& options) {
  const DType own = x[0].scalar_type();
  // As in Keras: small integers are added in 32 bits.
  const bool is_small = c10::isIntegralType(own, /*includeBool=*/true) && c10::elementSize(own) < 4;
  const DType dtype = is_small ? kInt32 : own;
  if (is_along_none(options)) return x[0].to(dtype);
  return at::sum(x[0], axes_told(options, "axis", x[0].dim()), keeps_axes(options), dtype);
}

using OfTwo = Tensor (*)(const Tensor&, const Tensor&);

// What is told as the first of all to compare, as a tensor of x's type.
Tensor with_initial(const Tensor& x, const Config& options, OfTwo of_two) {
  const Config* given = options.find("initial");
  if (given == nullptr || given->is_null()) return x;
  return of_two(x, at::scalar_tensor(given->number(), x.options()));
}

Tensor function_max(const std::vector<Tensor>& x, const Config& options) {
  if (is_along_none(options)) return with_initial(x[0], options, &at::maximum);
  const std::vector<int64_t> axes = axes_told(options, "axis", x[0].dim());
  return with_initial(at::amax(x[0], axes, keeps_axes(options)), options, &at::maximum);
}

Tensor function_min(const std::vector<Tensor>& x, const Config& options) {
  if (is_along_none(options)) return with_initial(x[0], options, &at::minimum);
  const std::vector<int64_t> axes = axes_told(options, "axis", x[0].dim());
  return with_initial(at::amin(x[0], axes, keeps_axes(options)), options, &at::minimum);
}

Tensor function_log_softmax(const std::vector<Tensor>& x, const Config& options) {
  if (is_along_none(options)) return at::zeros_like(x[0]);
  const std::vector<int64_t> axes = axes_told(options, "axis", x[0].dim());
  if (axes.size() == 1) return x[0].log_softmax(axes[0]);
  const Tensor shifted = x[0] - at::amax(x[0], axes, /*keepdim=*/true).detach();
  return shifted - shifted.exp().sum(axes, /*keepdim=*/true).log();
}

Tensor function_softmax(const std::vector<Tensor>& x, const Config& options) {
  if (is_along_none(options)) return at::ones_like(x[0]);
  const std::vector<int64_t> axes = axes_told(options, "axis", x[0].dim());
  if (axes.size() == 1) return x[0].softmax(axes[0]);
  return function_log_softmax(x, options).exp();
}

// Axes are those of the result.
Tensor function_expand_dims(const std::vector<Tensor>& x, const Config& options) {
  std::vector<int64_t> axes = axes_told(options, "axis", x[0].dim());
  const int64_t rank = x[0].dim() + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) {
    COHORT_CHECK_ARG(axis < rank && axis >= -rank, "[ExpandDims] expected axes of a result of ",
                     rank, " axes, got ", options.at("axis"));
    if (axis < 0) axis += rank;
  }
  std::ranges::sort(axes);
  COHORT_CHECK_ARG(std::ranges::adjacent_find(axes) == axes.end(),
                   "[ExpandDims] expected each axis once, got ", options.at("axis"));
  Tensor out = x[0];
  for (const int64_t axis : axes) out = out.unsqueeze(axis);
  return out;
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
  const std::vector<int64_t> axes = axes_told(options, "axis", x[0].dim());
  for (const int64_t axis : axes) {  // LibTorch leaves those that are longer
    COHORT_CHECK_ARG(x[0].size(axis) == 1, "[Squeeze] expected axes of size 1, got ",
                     x[0].size(axis), " of axis ", axis);
  }
  return x[0].squeeze(axes);
}

Tensor function_clip(const std::vector<Tensor>& x, const Config& options) {
  const at::Scalar least = wrapped_number(options.at("x_min")).item();
  return at::clamp(x[0], least, wrapped_number(options.at("x_max")).item());
}

// These two LibTorch computes of values alone: where there are only shapes, others have the same.
Tensor function_relu(const std::vector<Tensor>& x, const Config&) {
  return x[0].is_meta() ? x[0].clamp_min(0) : x[0].relu();
}

bool is_number(const Tensor& x) { return x.unsafeGetTensorImpl()->is_wrapped_number(); }

Tensor function_where(const std::vector<Tensor>& x, const Config&) {
  const Tensor condition = x[0].to(kBool);
  Tensor a = x[1], b = x[2];
  if (is_number(a) && is_number(b)) {  // there is none whose type they take
    const bool whole = !a.is_floating_point() && !b.is_floating_point();
    const at::TensorOptions options = condition.options().dtype(whole ? kInt32 : floatx());
    a = at::scalar_tensor(a.item(), options);
    b = at::scalar_tensor(b.item(), options);
  }
  if (condition.is_meta()) return (a + b) + condition;
  return at::where(condition, a, b);
}

constexpr const char* kFunctionsOfNn = "keras.src.ops.nn";
constexpr const char* kFunctionsOfNumpy = "keras.src.ops.numpy";
constexpr const char* kFunctionsOfCore = "keras.src.ops.core";

using Functions = std::map<std::string, TensorFunction>;

// Of these, some may be numbers.
Functions functions_that_broadcast() {
  using C = const Config&;
  using X = const std::vector<Tensor>&;
  using enum TensorFunction::Shapes;
  return {
      {"Divide", {kFunctionsOfNumpy, 2, [](X x, C) { return at::div(x[0], x[1]); }, kBroadcast}},
      {"Equal", {kFunctionsOfNumpy, 2, [](X x, C) { return at::eq(x[0], x[1]); }, kBroadcast}},
      {"Greater", {kFunctionsOfNumpy, 2, [](X x, C) { return at::gt(x[0], x[1]); }, kBroadcast}},
      {"GreaterEqual",
       {kFunctionsOfNumpy, 2, [](X x, C) { return at::ge(x[0], x[1]); }, kBroadcast}},
      {"Less", {kFunctionsOfNumpy, 2, [](X x, C) { return at::lt(x[0], x[1]); }, kBroadcast}},
      {"LessEqual", {kFunctionsOfNumpy, 2, [](X x, C) { return at::le(x[0], x[1]); }, kBroadcast}},
      {"Maximum",
       {kFunctionsOfNumpy, 2, [](X x, C) { return at::maximum(x[0], x[1]); }, kBroadcast}},
      {"Minimum",
       {kFunctionsOfNumpy, 2, [](X x, C) { return at::minimum(x[0], x[1]); }, kBroadcast}},
      {"Where", {kFunctionsOfNumpy, 3, function_where, kBroadcast}},
  };
}

Functions functions_of_nn() {
  using C = const Config&;
  using X = const std::vector<Tensor>&;
  using enum TensorFunction::Shapes;
  return {
      {"Elu",
       {kFunctionsOfNn,
        1,
        [](X x, C o) { return at::elu(x[0], number_told(o, "alpha", 1)); },
        kTried,
        {"alpha"}}},
      {"Gelu",
       {kFunctionsOfNn,
        1,
        [](X x, C o) { return at::gelu(x[0], o.boolean("approximate") ? "tanh" : "none"); },
        kTried,
        {"approximate"}}},
      {"LeakyRelu",
       {kFunctionsOfNn,
        1,
        [](X x, C o) { return at::leaky_relu(x[0], number_told(o, "negative_slope", 0.2)); },
        kTried,
        {"negative_slope"}}},
      {"LogSoftmax", {kFunctionsOfNn, 1, function_log_softmax, kTried, {"axis"}}},
      {"Relu", {kFunctionsOfNn, 1, function_relu}},
      {"Sigmoid", {kFunctionsOfNn, 1, [](X x, C) { return x[0].sigmoid(); }}},
      {"Silu", {kFunctionsOfNn, 1, [](X x, C) { return at::silu(x[0]); }}},
      {"Softmax", {kFunctionsOfNn, 1, function_softmax, kTried, {"axis"}}},
      {"Softplus", {kFunctionsOfNn, 1, [](X x, C) { return at::softplus(x[0]); }}},
  };
}

Functions functions_of_shapes() {
  using C = const Config&;
  using X = const std::vector<Tensor>&;
  using enum TensorFunction::Shapes;
  return {
      {"Cast",
       {kFunctionsOfCore,
        1,
        [](X x, C o) { return x[0].to(ConfigValue<DType>::read(o.at("dtype"))); },
        kTried,
        {"dtype"}}},
      {"Concatenate",
       {kFunctionsOfNumpy,
        0,
        [](X x, C o) { return at::cat(x, o.at("axis").integer()); },
        kJoined,
        {"axis"}}},
      {"ExpandDims", {kFunctionsOfNumpy, 1, function_expand_dims, kTried, {"axis"}}},
      {"Reshape", {kFunctionsOfNumpy, 1, function_reshape, kReshaped, {"newshape"}}},
      {"Squeeze", {kFunctionsOfNumpy, 1, function_squeeze, kTried, {"axis"}}},
      {"Stack",
       {kFunctionsOfNumpy,
        0,
        [](X x, C o) { return at::stack(x, o.at("axis").integer()); },
        kStacked,
        {"axis"}}},
      {"Transpose", {kFunctionsOfNumpy, 1, function_transpose, kTried, {"axes"}}},
  };
}

Functions functions_of_numpy() {
  using C = const Config&;
  using X = const std::vector<Tensor>&;
  using enum TensorFunction::Shapes;
  return {
      {"Clip", {kFunctionsOfNumpy, 1, function_clip, kTried, {"x_min", "x_max"}}},
      {"Exp", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].exp(); }}},
      {"Log", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].log(); }}},
      {"Max", {kFunctionsOfNumpy, 1, function_max, kTried, {"axis", "keepdims", "initial"}}},
      {"Mean", {kFunctionsOfNumpy, 1, function_mean, kTried, {"axis", "keepdims"}}},
      {"Min", {kFunctionsOfNumpy, 1, function_min, kTried, {"axis", "keepdims", "initial"}}},
      {"Sqrt", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].sqrt(); }}},
      {"Square", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].square(); }}},
      {"Sum", {kFunctionsOfNumpy, 1, function_sum, kTried, {"axis", "keepdims"}}},
      {"Tanh", {kFunctionsOfNumpy, 1, [](X x, C) { return x[0].tanh(); }}},
  };
}

const Functions& tensor_functions() {
  static const auto* functions = [] {
    auto* all = new Functions(functions_that_broadcast());
    for (Functions part : {functions_of_nn(), functions_of_shapes(), functions_of_numpy()}) {
      all->merge(part);
    }
    return all;
  }();
  return *functions;
}

}  // namespace

Tensor wrapped_number(const Config& number) {
  const bool whole = number.to_json().find_first_of(".eE") == std::string::npos;
  Tensor x = whole ? at::scalar_tensor(number.integer(), kInt64)
                   : at::scalar_tensor(number.number(), kFloat64);
  x.unsafeGetTensorImpl()->set_wrapped_number(true);
  return x;
}

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
