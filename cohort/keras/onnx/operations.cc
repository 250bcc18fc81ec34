// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic between the tensors of a drawing.
#include "cohort/keras/internal/operation.h"

#include <limits>
#include <optional>

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

}  // namespace

Values convert_operation(const Call& c, const data::TensorSpec& output) {
  const auto& operation = dynamic_cast<const Operation&>(c.layer);
  const std::string kind = operation.class_name();
  if (!operation.is_arithmetic()) c.refuse("as an operation");
  // Texts stand for the tensors.
  const Config::List arguments =
      operation.arguments_with(Config::List(c.in.size(), Config("tensor")));
  if (kind == "GetItem") return only(taken(c, arguments.at(1)));
  if (kind == "Negative") return only(c.g("Neg", {c.in[0].name}));
  if (kind == "Absolute") return only(c.g("Abs", {c.in[0].name}));
  const DType dtype = output.dtype == DType::Undefined ? kFloat32 : output.dtype;
  Names x;
  std::size_t next = 0;
  for (const Config& argument : arguments) {
    if (argument.is_text()) {
      const Value& value = c.in.at(next++);
      const bool fits = value.spec.dtype == dtype || value.spec.dtype == DType::Undefined;
      x.push_back(fits ? value.name : c.g.cast(value.name, dtype));
    } else {
      const Tensor number = from_vector<double>({argument.number()}, {}).to(dtype);
      x.push_back(c.g.constant(number, "number"));
    }
  }
  return only(of_two(c, kind, x, c10::isFloatingType(dtype)));
}

}  // namespace cohort::keras::internal::onnx
