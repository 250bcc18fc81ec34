// SPDX-License-Identifier: Apache-2.0
//
// What workers tell each other ahead of an update: which gradients each has, how many rows of those
// that are rows, and that all are about to do the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "cohort/collectives/communicator.h"
#include "cohort/variables/internal/clipped_update.h"
#include "cohort/variables/recorded_rule.h"

namespace cohort::internal::variables {

/// Threads: written by one, read by all behind a meeting.
class WorkerAgreement {
 public:
  WorkerAgreement(const UpdateLayout& layout, int worker, int workers);

  /// This worker's: a variable has a gradient if some local replica has one. `rows`: of variables
  /// that some replica has rows of, how many there are on all local ones. `ahead`: what it has
  /// updated by, if it has during the pass.
  void write(Posts posts, const std::map<std::size_t, int64_t>& rows, const RuleOfStep& now,
             const RuleOfStep* ahead);
  collectives::Communicator::Pending exchange(collectives::Communicator& communicator);
  /// When all have arrived. Errors: FailedPrecondition that names a worker with other variables,
  ///         another rule, learning rate or weight decay.
  void conclude();

  /// Every worker has every gradient, at its place in the layout's runs.
  bool full() const { return full_; }
  /// Every worker has a gradient of every variable, and none has rows.
  bool all_dense() const { return all_dense_; }
  /// What workers have updated during the pass is what they would now.
  bool holds_ahead() const { return all_dense_ && ahead_; }
  bool has_gradient(int worker, std::size_t variable) const {
    return brought(worker, variable) != kNothing;
  }
  /// How many rows of the variable's gradient a worker has, where a dense one counts as `all`.
  int64_t rows(int worker, std::size_t variable, int64_t all) const {
    const int64_t count = brought(worker, variable);
    return count == kDense ? all : std::max(count, int64_t{0});
  }
  /// Some worker has rows of it.
  bool has_rows(std::size_t variable) const { return present_[variable] == kByRows; }
  /// Some worker has a gradient of it.
  bool is_present(std::size_t variable) const { return present_[variable] != 0; }
  bool all_present() const {
    return std::all_of(present_.begin(), present_.end(), [](uint8_t p) { return p != 0; });
  }

 private:
  // What a worker has stands behind it, a number for each variable: rows, or one of these.
  static constexpr int64_t kNothing = -1;
  static constexpr int64_t kDense = -2;
  // What `present_` says of a variable that some worker has a gradient of.
  static constexpr uint8_t kAsDense = 1;
  static constexpr uint8_t kByRows = 2;
  struct Header {
    uint64_t variables = 0;  // a digest of their names and shapes
    uint64_t rule = 0;
    double number = 0;  // the rule's first one: its learning rate, or what that made of it
    double weight_decay = 0;
    uint64_t full = 0;
    uint64_t ahead = 0;  // by the same rule
  };
  const std::byte* row(int worker) const {
    return rows_.data() + row_bytes_ * static_cast<std::size_t>(worker);
  }
  int64_t brought(int worker, std::size_t variable) const {
    int64_t count = 0;
    std::memcpy(&count, row(worker) + sizeof(Header) + variable * sizeof count, sizeof count);
    return count;
  }
  Header header(int worker) const;
  void check_same(const Header& mine, int worker, const Header& theirs) const;

  const int worker_;
  const int workers_;
  const uint64_t digest_;
  const std::size_t row_bytes_;
  std::vector<std::byte> rows_;  // [worker]
  bool full_ = false;
  bool all_dense_ = false;
  bool ahead_ = false;
  std::vector<uint8_t> present_;  // [variable]
};

}  // namespace cohort::internal::variables
