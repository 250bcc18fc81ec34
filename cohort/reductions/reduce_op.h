// SPDX-License-Identifier: Apache-2.0
//
// How several values become one.
#pragma once

#include <string>
#include <string_view>

namespace cohort {

/// TF: tf.distribute.ReduceOp has SUM and MEAN.
enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };

/// "sum", "MEAN", ... Errors: InvalidArgument for another name.
ReduceOp parse_reduce_op(std::string_view name);
/// "sum", "mean", "min", "max" or "product".
const char* reduce_op_name(ReduceOp op);

/// What takes a ReduceOp also takes its name: strategy.reduce("sum", x).
/// Errors: as parse_reduce_op.
class ReduceOpArg {
 public:
  ReduceOpArg(ReduceOp op) : op_(op) {}  // NOLINT: implicit by design
  ReduceOpArg(const char* name)          // NOLINT
      : op_(parse_reduce_op(name != nullptr ? name : "")) {}
  ReduceOpArg(const std::string& name) : op_(parse_reduce_op(name)) {}  // NOLINT
  operator ReduceOp() const { return op_; }                             // NOLINT

 private:
  ReduceOp op_;
};

}  // namespace cohort
