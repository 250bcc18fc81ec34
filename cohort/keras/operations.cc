// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/operations.h"

#include <memory>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/internal/operation.h"

namespace cohort::keras {
namespace {

using ops::Operand;

KerasTensor draw_operation(const char* kind, std::vector<Config> arguments,
                           std::vector<KerasTensor> tensors) {
  const Layer node(std::make_shared<internal::Operation>(kind, std::move(arguments)));
  return node(tensors.size() == 1 ? tensors[0] : KerasTensor::tuple(std::move(tensors)));
}

KerasTensor of_operands(const char* kind, const Operand& a, const Operand& b) {
  std::vector<Config> arguments;
  std::vector<KerasTensor> tensors;
  for (const Operand* x : {&a, &b}) {
    arguments.push_back(x->number());
    if (x->tensor().has_value()) tensors.push_back(x->tensor());
  }
  return draw_operation(kind, std::move(arguments), std::move(tensors));
}

Config slice_config(std::optional<int64_t> start, std::optional<int64_t> stop,
                    std::optional<int64_t> step) {
  const auto value = [](std::optional<int64_t> x) { return x ? Config(*x) : Config(); };
  return Config::object(
      {{"class_name", "__slice__"},
       {"config",
        Config::object({{"start", value(start)}, {"stop", value(stop)}, {"step", value(step)}})}});
}

}  // namespace

namespace ops {

Operand::Operand(KerasTensor tensor) : tensor_(std::move(tensor)) {
  COHORT_CHECK_ARG(tensor_.has_value() && !tensor_.is_tuple(),
                   "[ops] expected one symbolic tensor, such as keras::Input() gives, got ",
                   tensor_);
}

Index::Index(int64_t at) : config_(at) {}

Index Index::slice(std::optional<int64_t> start, std::optional<int64_t> stop,
                   std::optional<int64_t> step) {
  return Index(slice_config(start, stop, step));
}

Index Index::ellipsis() {
  return Index(Config::object({{"class_name", "__ellipsis__"}, {"config", Config::object()}}));
}

Index Index::new_axis() { return Index(Config()); }

KerasTensor add(const Operand& a, const Operand& b) { return of_operands("Add", a, b); }
KerasTensor subtract(const Operand& a, const Operand& b) { return of_operands("Subtract", a, b); }
KerasTensor multiply(const Operand& a, const Operand& b) { return of_operands("Multiply", a, b); }
KerasTensor true_divide(const Operand& a, const Operand& b) {
  return of_operands("TrueDivide", a, b);
}
KerasTensor floor_divide(const Operand& a, const Operand& b) {
  return of_operands("FloorDivide", a, b);
}
KerasTensor mod(const Operand& a, const Operand& b) { return of_operands("Mod", a, b); }
KerasTensor power(const Operand& a, const Operand& b) { return of_operands("Power", a, b); }
KerasTensor matmul(const KerasTensor& a, const KerasTensor& b) {
  return of_operands("Matmul", a, b);
}
KerasTensor negative(const KerasTensor& x) { return draw_operation("Negative", {Config()}, {x}); }
KerasTensor absolute(const KerasTensor& x) { return draw_operation("Absolute", {Config()}, {x}); }

KerasTensor get_item(const KerasTensor& x, const std::vector<Index>& key) {
  Config::List parts;
  for (const Index& part : key) parts.push_back(part.config());
  return draw_operation("GetItem", {Config(), Config(std::move(parts))}, {x});
}

}  // namespace ops

KerasTensor operator+(const KerasTensor& a, const KerasTensor& b) { return ops::add(a, b); }
KerasTensor operator+(const KerasTensor& a, const Operand& b) { return ops::add(a, b); }
KerasTensor operator+(const Operand& a, const KerasTensor& b) { return ops::add(a, b); }
KerasTensor operator-(const KerasTensor& a, const KerasTensor& b) { return ops::subtract(a, b); }
KerasTensor operator-(const KerasTensor& a, const Operand& b) { return ops::subtract(a, b); }
KerasTensor operator-(const Operand& a, const KerasTensor& b) { return ops::subtract(a, b); }
KerasTensor operator*(const KerasTensor& a, const KerasTensor& b) { return ops::multiply(a, b); }
KerasTensor operator*(const KerasTensor& a, const Operand& b) { return ops::multiply(a, b); }
KerasTensor operator*(const Operand& a, const KerasTensor& b) { return ops::multiply(a, b); }
KerasTensor operator/(const KerasTensor& a, const KerasTensor& b) { return ops::true_divide(a, b); }
KerasTensor operator/(const KerasTensor& a, const Operand& b) { return ops::true_divide(a, b); }
KerasTensor operator/(const Operand& a, const KerasTensor& b) { return ops::true_divide(a, b); }
KerasTensor operator-(const KerasTensor& x) { return ops::negative(x); }

}  // namespace cohort::keras
