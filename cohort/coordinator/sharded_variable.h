// SPDX-License-Identifier: Apache-2.0
//
// A variable whose rows are kept in several shards, as one.
//
//   ShardedVariable table(shards);            // or of a variable that a partitioner has cut
//   Tensor head = table[{{0, 2}}];            // reads the shards that have rows 0 and 1
//   Tensor last = table[{-1}];
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/variables/variable.h"

namespace cohort {

/// One axis of an index: a number, or begin:end:step as Python has it; Slice::all() is ":",
/// Slice::ellipsis() is "...", and Slice::new_axis() makes an axis of size 1, tf.newaxis.
struct Slice {
  std::optional<int64_t> begin = {};
  std::optional<int64_t> end = {};
  int64_t step = 1;
  bool is_number = false;  ///< `begin` alone, whose axis goes.
  bool is_new_axis = false;
  bool is_ellipsis = false;

  Slice(int64_t index) : begin(index), is_number(true) {}  // NOLINT: implicit by design
  Slice(int index) : Slice(int64_t{index}) {}              // NOLINT
  Slice(std::optional<int64_t> from, std::optional<int64_t> to, int64_t by = 1)
      : begin(from), end(to), step(by) {}
  static Slice all() { return {std::nullopt, std::nullopt}; }
  static Slice new_axis() {
    Slice out = all();
    out.is_new_axis = true;
    return out;
  }
  static Slice ellipsis() {
    Slice out = all();
    out.is_ellipsis = true;
    return out;
  }
};

/// Handle. A Variable that a partitioner has cut, or that is made of the program's own variables:
/// cut along the first axis into consecutive rows ("div"). Read, it is the shards one after the
/// other; written, each shard gets its rows. A gradient is asked for with respect to the whole, not
/// to its shards. TF: what tf.Variable gives under a partitioner (ShardedVariable).
class ShardedVariable : public Variable {
 public:
  /// Errors: InvalidArgument without shards, and for those of different dtypes, or of shapes that
  ///         differ in another axis than the first.
  explicit ShardedVariable(std::vector<Variable> shards, std::string name = {});
  /// Errors: InvalidArgument for a variable in one piece.
  explicit ShardedVariable(const Variable& variable);

  /// "name/part_0", ...
  std::vector<Variable> variables() const { return components(); }
  /// What stands for missing axes is all of them. Of the first axis only shards that have one of
  /// the rows are read, and of them these rows. Errors: Error kOutOfRange for a number that is no
  /// row; InvalidArgument for a step of 0, two ellipses, and for
  ///         more axes than there are.
  Tensor operator[](const std::vector<Slice>& index) const;
};

}  // namespace cohort
