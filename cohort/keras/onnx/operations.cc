// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic between the tensors of a drawing, and functions of them.
#include "cohort/keras/internal/operation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "cohort/keras/onnx/call.h"

namespace cohort::keras::internal::onnx {
namespace {

bool is_class(const Config& part, const char* name) {
  const Config* of = part.find("class_name");
  return of != nullptr && of->is_text() && of->text() == name;
}

int64_t bound_or(const Config& slice, const char* name, int64_t otherwise) {
  const Config* value = slice.at("config").find(name);
  return value == nullptr || value->is_null() ? otherwise : value->integer();
}

// x[...] of Python, part by part.
std::string taken(const Call& c, const Config& key) {
  const Config::List parts = key.is_list() ? key.list() : Config::List{key};
  int64_t named = 0, axis = 0;
  for (const Config& part : parts) {
    if (!part.is_null() && !is_class(part, "__ellipsis__")) ++named;
  }
  std::string x = c.in[0].name;
  for (const Config& part : parts) {
    if (part.is_null()) {
      x = c.g("Unsqueeze", {x, c.g.ints({axis++})});
    } else if (is_class(part, "__ellipsis__")) {
      axis += static_cast<int64_t>(c.rank()) - named;
    } else if (is_class(part, "__slice__")) {
      x = slice(c, x, axis++, bound_or(part, "start", 0),
                bound_or(part, "stop", std::numeric_limits<int64_t>::max()),
                bound_or(part, "step", 1));
    } else {
      x = c.g("Gather", {x, c.g.integer(part.integer())}, {{"axis", axis}});
    }
  }
  return x;
}

std::string divided_down(Writer& g, const Names& x, bool is_floating) {
  if (is_floating) return g("Floor", {g("Div", x)});
  return g("Div", {g("Sub", {x[0], g("Mod", x)}), x[1]});
}

// With the sign of the divisor.
std::string rest(Writer& g, const Names& x, bool is_floating) {
  if (!is_floating) return g("Mod", x);
  return g("Sub", {x[0], g("Mul", {divided_down(g, x, true), x[1]})});
}

std::string of_two(const Call& c, const std::string& kind, const Names& x, bool is_floating) {
  static const std::map<std::string, const char*> plain = {
      {"Add", "Add"},        {"Subtract", "Sub"}, {"Multiply", "Mul"},
      {"TrueDivide", "Div"}, {"Power", "Pow"},    {"Matmul", "MatMul"}};
  if (kind == "FloorDivide") return divided_down(c.g, x, is_floating);
  if (kind == "Mod") return rest(c.g, x, is_floating);
  const auto found = plain.find(kind);
  if (found == plain.end()) c.refuse("as an operation");
  return c.g(found->second, x);
}

DType type_or(DType dtype) { return dtype == DType::Undefined ? kFloat32 : dtype; }

std::string as_type(const Call& c, const Value& value, DType dtype) {
  const bool fits = value.spec.dtype == dtype || value.spec.dtype == DType::Undefined;
  return fits ? value.name : c.g.cast(value.name, dtype);
}

std::string number_of(const Call& c, double number, DType dtype) {
  return c.g.constant(from_vector<double>({number}, {}).to(dtype), "number");
}

// Inputs and numbers, in their order.
Names operands(const Call& c, const Config::List& arguments, DType dtype) {
  Names x;
  std::size_t next = 0;
  for (const Config& argument : arguments) {
    x.push_back(argument.is_text() ? as_type(c, c.in.at(next++), dtype)
                                   : number_of(c, argument.number(), dtype));
  }
  return x;
}

// In which two are compared: a number takes the tensor's, but for a fraction beside whole ones.
DType compared_type(const Call& c, const Config::List& arguments) {
  DType dtype = type_or(c.in[0].spec.dtype);
  if (c.in.size() == 2) return c10::promoteTypes(dtype, type_or(c.in[1].spec.dtype));
  for (const Config& argument : arguments) {
    if (argument.is_number() && !c10::isFloatingType(dtype)) {
      dtype = std::floor(argument.number()) == argument.number() ? kInt64 : kFloat32;
    }
  }
  return dtype;
}

bool is_null(const Call& c, const char* option) {
  const Config* given = c.config.find(option);
  return given == nullptr || given->is_null();
}

std::vector<int64_t> axes_or_all(const Call& c, const char* option) {
  if (!is_null(c, option)) return c.axes(option);
  std::vector<int64_t> all(c.rank());
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

std::string reduced(const Call& c, const std::string& kind, DType dtype) {
  static const std::map<std::string, std::pair<const char*, const char*>> names = {
      {"Max", {"ReduceMax", "Max"}},
      {"Mean", {"ReduceMean", ""}},
      {"Min", {"ReduceMin", "Min"}},
      {"Sum", {"ReduceSum", ""}}};
  const auto& [reduce, of_two] = names.at(kind);
  if (dtype == kBool) c.refuse("of bool");
  const std::vector<int64_t> axes = axes_or_all(c, "axis");
  const int64_t keeps = c.config.boolean("keepdims") ? 1 : 0;
  std::string y = as_type(c, c.in[0], dtype);
  if (!axes.empty()) y = c.g(reduce, {y, c.g.ints(axes)}, {{"keepdims", keeps}});
  if (is_null(c, "initial")) return y;
  return c.g(of_two, {y, number_of(c, c.config.number("initial"), dtype)});
}

std::string softmax(const Call& c, const std::string& kind, const std::string& x) {
  const bool is_log = kind == "LogSoftmax";
  const std::vector<int64_t> axes = axes_or_all(c, "axis");
  if (axes.empty()) c.refuse("along no axis");
  if (axes.size() == 1) return c.g(is_log ? "LogSoftmax" : "Softmax", {x}, {{"axis", axes[0]}});
  const std::string y = c.g("Sub", {x, c.g("ReduceLogSumExp", {x, c.g.ints(axes)})});
  return is_log ? y : c.g("Exp", {y});
}

// x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2.
std::string gelu_by_tanh(Writer& g, const std::string& x) {
  const std::string cube = g("Mul", {x, g("Mul", {x, x})});
  const std::string inner = g("Add", {x, g("Mul", {cube, g.number(0.044715)})});
  const double scale = std::sqrt(2 * std::numbers::inv_pi);
  const std::string part = g("Add", {g("Tanh", {g("Mul", {inner, g.number(scale)})}), g.number(1)});
  return g("Mul", {g("Mul", {x, g.number(0.5)}), part});
}

// Of floating values, element by element or along axes; empty: another one. Computed in float32.
std::string of_floats(const Call& c, const std::string& kind) {
  static const std::map<std::string, const char*> activations = {
      {"Exp", "exponential"}, {"Relu", "relu"},         {"Sigmoid", "sigmoid"},
      {"Silu", "silu"},       {"Softplus", "softplus"}, {"Tanh", "tanh"}};
  static const std::map<std::string, std::pair<const char*, double>> sloped = {
      {"Elu", {"alpha", 1}}, {"LeakyRelu", {"negative_slope", 0.2}}};
  const std::string x = c.x();
  if (const auto found = activations.find(kind); found != activations.end()) {
    return activate(c, Config(found->second), x);
  }
  if (const auto found = sloped.find(kind); found != sloped.end()) {
    const auto& [option, standard] = found->second;
    const double alpha = is_null(c, option) ? standard : c.config.number(option);
    return c.g(kind.c_str(), {x}, {{"alpha", alpha}});
  }
  if (kind == "Log" || kind == "Sqrt") return c.g(kind.c_str(), {x});
  if (kind == "LogSoftmax" || kind == "Softmax") return softmax(c, kind, x);
  if (kind == "Gelu") {
    return c.config.boolean("approximate") ? gelu_by_tanh(c.g, x) : activate(c, Config("gelu"), x);
  }
  return {};
}

std::string reshaped_as_told(const Call& c) {
  std::vector<int64_t> sizes;
  for (const Config& size : c.config.at("newshape").list()) {
    sizes.push_back(size.is_null() ? -1 : size.integer());
    if (sizes.back() == 0) c.refuse("to a size of 0");
  }
  return c.g("Reshape", {c.in[0].name, c.g.ints(sizes)});
}

std::string joined(const Call& c, const std::string& kind, DType dtype, std::size_t rank) {
  int64_t axis = c.config.integer("axis");
  if (axis < 0) axis += static_cast<int64_t>(rank);
  Names x;
  for (const Value& value : c.in) {
    x.push_back(as_type(c, value, dtype));
    if (kind == "Stack") x.back() = c.g("Unsqueeze", {x.back(), c.g.ints({axis})});
  }
  return c.g("Concat", x, {{"axis", axis}});
}

// What moves values; empty: another one.
std::string of_shape(const Call& c, const std::string& kind, const data::TensorSpec& output) {
  const std::string& x = c.in[0].name;
  if (kind == "Reshape") return reshaped_as_told(c);
  if (kind == "Concatenate" || kind == "Stack") {
    return joined(c, kind, type_or(output.dtype), output.shape.size());
  }
  if (kind == "ExpandDims") {
    const std::vector<int64_t> axes = c.numbers("axis", 1);
    return axes.empty() ? x : c.g("Unsqueeze", {x, c.g.ints(axes)});
  }
  if (kind == "Squeeze") {
    if (is_null(c, "axis")) return c.g("Squeeze", {x});
    const std::vector<int64_t> axes = c.axes("axis");
    return axes.empty() ? x : c.g("Squeeze", {x, c.g.ints(axes)});
  }
  if (kind != "Transpose") return {};
  std::vector<int64_t> order = axes_or_all(c, "axes");
  if (is_null(c, "axes")) {
    std::ranges::reverse(order);
  } else {
    order.clear();
    for (const Config& axis : c.config.at("axes").list()) {
      order.push_back(axis.integer() + (axis.integer() < 0 ? static_cast<int64_t>(c.rank()) : 0));
    }
  }
  return transpose(c, x, order);
}

std::string compared(const Call& c, const std::string& kind, const Config::List& arguments) {
  static const std::map<std::string, const char*> names = {{"Equal", "Equal"},
                                                           {"Greater", "Greater"},
                                                           {"GreaterEqual", "GreaterOrEqual"},
                                                           {"Less", "Less"},
                                                           {"LessEqual", "LessOrEqual"}};
  const auto found = names.find(kind);
  if (found == names.end()) return {};
  return c.g(found->second, operands(c, arguments, compared_type(c, arguments)));
}

// Where some of the arguments may be numbers; empty: another one.
std::string of_several(const Call& c, const std::string& kind, const Config::List& arguments,
                       DType dtype) {
  if (kind == "Divide") return c.g("Div", operands(c, arguments, dtype));
  if (kind == "Maximum") return c.g("Max", operands(c, arguments, dtype));
  if (kind == "Minimum") return c.g("Min", operands(c, arguments, dtype));
  if (kind != "Where") return compared(c, kind, arguments);
  if (!arguments[0].is_text()) c.refuse("whose condition is a number");
  Names x = operands(c, arguments, dtype);
  x[0] = as_type(c, c.in[0], kBool);
  return c.g("Where", x);
}

std::string function(const Call& c, const std::string& kind, const Config::List& arguments,
                     const data::TensorSpec& output) {
  const DType dtype = type_or(output.dtype);
  const bool reduces = kind == "Max" || kind == "Mean" || kind == "Min" || kind == "Sum";
  if (reduces) return reduced(c, kind, dtype);
  if (kind == "Cast") return as_type(c, c.in[0], dtype);
  if (kind == "Square") {
    const std::string x = as_type(c, c.in[0], dtype);
    return c.g("Mul", {x, x});
  }
  if (kind == "Clip") {
    return c.g("Clip", {as_type(c, c.in[0], dtype), number_of(c, c.config.number("x_min"), dtype),
                        number_of(c, c.config.number("x_max"), dtype)});
  }
  if (std::string y = of_several(c, kind, arguments, dtype); !y.empty()) return y;
  if (std::string y = of_shape(c, kind, output); !y.empty()) return y;
  const std::string y = of_floats(c, kind);
  if (y.empty()) c.refuse("as an operation");
  return dtype == kFloat32 ? y : c.g.cast(y, dtype);
}

}  // namespace

Values convert_operation(const Call& c, const data::TensorSpec& output) {
  const auto& operation = dynamic_cast<const Operation&>(c.layer);
  const std::string kind = operation.class_name();
  // Texts stand for the tensors.
  const Config::List arguments =
      operation.arguments_with(Config::List(c.in.size(), Config("tensor")));
  if (!operation.is_arithmetic()) return only(function(c, kind, arguments, output));
  if (kind == "GetItem") return only(taken(c, arguments.at(1)));
  if (kind == "Negative") return only(c.g("Neg", {c.in[0].name}));
  if (kind == "Absolute") return only(c.g("Abs", {c.in[0].name}));
  const DType dtype = type_or(output.dtype);
  const Names x = operands(c, arguments, dtype);
  return only(of_two(c, kind, x, c10::isFloatingType(dtype)));
}

}  // namespace cohort::keras::internal::onnx
