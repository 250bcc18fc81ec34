// SPDX-License-Identifier: Apache-2.0
//
// Pushes that wait for others, with which they are one update: what TensorFlow's
// ConditionalAccumulator and SparseConditionalAccumulator keep for a variable.
//
//   PushSum sum;
//   const PushStamp stamp{.needed = 2, .step = 0};
//   if (sum.takes(stamp)) sum.add(ones({3, 2}), /*scale=*/1);
//   if (sum.takes(stamp)) sum.add({.rows = {1}, .values = ones({1, 2})}, 1, false);
//   if (sum.is_complete(stamp.needed)) {
//     Tensor all = sum.dense_of(/*rows=*/3);   // is applied, divided by sum.count()
//     sum.begin_next();
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "cohort/coordinator/parameters/message.h"
#include "cohort/runtime/tensor.h"
#include "cohort/variables/row_sum.h"

namespace cohort::internal::coordinator {

/// What travels with a push.
struct PushStamp {
  uint64_t needed = 1;     ///< Pushes of one update.
  bool drops_late = true;  ///< Else an older one counts as any other.
  uint64_t step = 0;       ///< How many updates there were when its weights were read.
};
void write_stamp(rpc::MessageWriter& out, const PushStamp& stamp);
/// Errors: DataLoss.
PushStamp read_stamp(rpc::MessageReader& in);

/// What became of a push that is counted.
struct PushCount {
  uint64_t step = 0;     ///< Updates by now: for the stamps of those whose weights are read next.
  bool is_late = false;  ///< It does not count.
};

/// Value. Threads: thread-compatible.
class PushSum {
 public:
  /// How many updates have been made.
  uint64_t step() const { return step_; }
  uint64_t count() const { return count_; }
  /// Whether a push counts: one of older weights is late. Where nothing waits, the first one of
  /// newer weights says how many updates there were: the variable had no part in some of them.
  bool takes(const PushStamp& stamp);
  bool is_complete(uint64_t needed) const { return count_ >= needed; }
  /// One more, times scale. Shapes: [rows, width]; `rows` has at least one row or no values. What
  /// is given is nobody else's from here on.
  void add(Tensor dense, double scale);
  void add(variables::RowSum rows, double scale, bool others_too);
  /// One that is only counted.
  void add() { ++count_; }
  /// How the last push is applied. Unset: nothing waits, or is only counted.
  const std::optional<UpdateStep>& last() const { return last_; }
  void note_last(UpdateStep step) { last_ = std::move(step); }
  /// Nothing waits, and there was one update more.
  void begin_next();

  /// Undefined where all pushes had rows alone. Else with those, of `rows` rows.
  Tensor dense_of(int64_t rows) const;
  const variables::RowSum& rows() const { return rows_; }
  bool others_too() const { return others_too_; }
  std::size_t bytes() const;
  /// What another push asks for at most, and an update with it: one of `named` rows, or of all of
  /// them. `row_bytes` and `rows`: of the variable.
  std::size_t room_for(std::optional<std::size_t> named, std::size_t row_bytes,
                       std::size_t rows) const;

  /// Owns: a share of the sums, which are not changed while it is there.
  void save(rpc::MessageWriter& out, rpc::Payload& numbers) const;
  /// Of a variable of so many rows. Errors: DataLoss.
  static PushSum load(rpc::MessageReader& in, PayloadReader& numbers, const Shape& by_rows,
                      DType dtype);

 private:
  uint64_t step_ = 0;
  uint64_t count_ = 0;
  bool others_too_ = false;
  Tensor dense_ = {};
  variables::RowSum rows_ = {};
  std::optional<UpdateStep> last_ = {};
};

}  // namespace cohort::internal::coordinator
