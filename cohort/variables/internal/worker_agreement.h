// SPDX-License-Identifier: Apache-2.0
//
// What workers tell each other ahead of an update: which gradients each has, and that all are about
// to do the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/collectives/communicator.h"
#include "cohort/variables/internal/clipped_update.h"

namespace cohort::internal {

/// Threads: written by one, read by all behind a meeting.
class WorkerAgreement {
 public:
  WorkerAgreement(const UpdateLayout& layout, int worker, int workers);

  /// This worker's: a variable has a gradient if some local replica has one.
  void write(Posts posts, const update_rules::Rule& rule, double weight_decay);
  Communicator::Pending exchange(Communicator& communicator);
  /// When all have arrived. Errors: FailedPrecondition that names a worker with other variables,
  ///         another rule, learning rate or weight decay.
  void conclude();

  /// Every worker has every gradient, at its place in the layout's runs.
  bool full() const { return full_; }
  bool has_gradient(int worker, std::size_t variable) const {
    return row(worker)[sizeof(Header) + variable] != std::byte{0};
  }
  /// Some worker has a gradient of it.
  bool is_present(std::size_t variable) const { return present_[variable] != 0; }
  bool all_present() const {
    return std::all_of(present_.begin(), present_.end(), [](uint8_t p) { return p != 0; });
  }

 private:
  // Which gradients a worker has stands behind it, a byte for each variable.
  struct Header {
    uint64_t variables = 0;  // a digest of their names and shapes
    uint64_t rule = 0;
    double number = 0;  // the rule's first one: its learning rate, or what that made of it
    double weight_decay = 0;
    uint64_t full = 0;
  };
  const std::byte* row(int worker) const {
    return rows_.data() + row_bytes_ * static_cast<std::size_t>(worker);
  }
  Header header(int worker) const;
  void check_same(const Header& mine, int worker, const Header& theirs) const;

  const int worker_;
  const int workers_;
  const uint64_t digest_;
  const std::size_t row_bytes_;
  std::vector<std::byte> rows_;  // [worker]
  bool full_ = false;
  std::vector<uint8_t> present_;  // [variable]
};

}  // namespace cohort::internal
