// SPDX-License-Identifier: Apache-2.0
//
// What an all-reduce inside one process is held against: two threads written by hand that do
// nothing but the adding.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace cohort::bench {

/// Two threads, each pinned to a core, with an input and a result of `bytes` each. They meet, each
/// adds its half of the two inputs and writes it into both results, and they meet again: 2 * bytes
/// are read and 2 * bytes are written, once, and memory stays where it is.
class ReduceLimit {
 public:
  ReduceLimit(std::int64_t bytes, std::vector<int> cores);
  ~ReduceLimit();

  /// Time of one all-reduce, the better of stores into the caches and past them, each repeated
  /// `steps` times. Units: us.
  double us(std::int64_t steps);

 private:
  struct Arrays;
  std::int64_t floats_;
  std::vector<int> cores_;
  std::unique_ptr<Arrays> arrays_;
};

}  // namespace cohort::bench
