// SPDX-License-Identifier: Apache-2.0
#include "cohort/reductions/reduce_op.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "cohort/base/check.h"

namespace cohort {

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown";
}

ReduceOp parse_reduce_op(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (lower == reduce_op_name(op)) return op;
  }
  throw InvalidArgument(
      str_cat("[parse_reduce_op] expected sum, mean, min, max or product, got \"", name, "\""));
}

}  // namespace cohort
