// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/show.h"

#include <cstdio>

namespace cohort::conformance {

std::string show_number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

std::string show_tensor(const Tensor& t) {
  if (!t.defined()) return "undefined";
  if (t.dim() == 0) return show_number(t.item<double>());
  std::string out = "[";
  for (int64_t i = 0; i < t.size(0); ++i) out += (i > 0 ? ", " : "") + show_tensor(t.select(0, i));
  return out + "]";
}

std::string show_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kFailedPrecondition:
      return "FailedPrecondition";
    case ErrorCode::kUnimplemented:
      return "Unimplemented";
    case ErrorCode::kCancelled:
      return "Cancelled";
    case ErrorCode::kUnavailable:
      return "Unavailable";
    default:
      return error_code_name(error.code());
  }
}

Word components(const Variable& v) {
  std::vector<Tensor> values;
  for (const Variable& component : v.components()) values.push_back(component.value());
  return {show(PerReplica<Tensor>(std::move(values)))};
}

}  // namespace cohort::conformance
