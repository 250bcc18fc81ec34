// SPDX-License-Identifier: Apache-2.0
#include "cohort/data/core/internal/function_adapter.h"

#include <c10/core/Scalar.h>

#include <cmath>

namespace cohort::internal::data {
namespace {

std::string counted(std::size_t n) {
  return std::to_string(n) + (n == 1 ? " component" : " components");
}

at::Scalar scalar_of(const std::string& operation, const Element& element) {
  if (!element.is_tensor() || element.tensor().numel() != 1) {
    refuse_component(operation, "one number", element);
  }
  return element.tensor().item();
}

}  // namespace

void refuse_component(const std::string& operation, const std::string& wanted, const Element& got) {
  throw InvalidArgument(str_cat(operation, " expected ", wanted, ", got ", got.spec().to_string()));
}

void check_components(const std::string& operation, std::size_t least, std::size_t most,
                      const ElementSpec& got) {
  if (got.is_unknown() || (got.size() >= least && got.size() <= most)) return;
  const std::string takes = least == most ? counted(most) : str_cat(least, " to ", counted(most));
  throw InvalidArgument(str_cat(operation, " function takes ", takes, ", element has ", got.size(),
                                " ", got.to_string()));
}

bool holds_datasets(const ElementSpec& spec) {
  if (!spec.is_tuple()) return spec.is_dataset();
  for (std::size_t i = 0; i < spec.size(); ++i) {
    if (!holds_datasets(spec[i])) return false;
  }
  return spec.size() > 0;
}

void check_datasets(const std::string& operation, const ElementSpec& got) {
  COHORT_CHECK_ARG(got.is_unknown() || holds_datasets(got), operation,
                   " function takes a dataset, element is ", got.to_string());
}

double number_of(const std::string& operation, const Element& element) {
  return scalar_of(operation, element).toDouble();
}

int64_t integer_of(const std::string& operation, const Element& element) {
  const at::Scalar number = scalar_of(operation, element);
  if (number.isFloatingPoint()) {
    const double value = number.toDouble();
    constexpr double kLimit = 9223372036854775808.0;  // 2^63
    if (!(value >= -kLimit && value < kLimit) || value != std::trunc(value)) {
      refuse_component(operation, "a whole number", element);
    }
  }
  return number.toLong();
}

}  // namespace cohort::internal::data
