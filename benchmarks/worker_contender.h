// SPDX-License-Identifier: Apache-2.0
//
// Cohort's side of worker_bench: ranks as processes of this machine that add up numbers together.
#pragma once

#include <cstdint>

namespace cohort::bench {

/// The sum of all ranks' numbers is in every rank's when it is right: rank r brings r + 1.
inline double expected_sum(int ranks) { return ranks * (ranks + 1) / 2.0; }

/// Starts ranks 1 to `ranks` - 1 and is rank 0 on the pipe: "run BYTES STEPS" answers with the
/// nanoseconds of so many all-reduces. Returns the process's exit status.
int serve_ranks(int ranks, bool shared_memory);

/// Two processes (by fork) that do nothing but what an all-reduce of their numbers cannot avoid:
/// each adds its half of both inputs and writes it into both results, in memory they share; every
/// byte is read once and written once. Time of one. Units: us.
class SharedReduceLimit {
 public:
  explicit SharedReduceLimit(std::int64_t bytes);
  ~SharedReduceLimit();
  SharedReduceLimit(const SharedReduceLimit&) = delete;
  SharedReduceLimit& operator=(const SharedReduceLimit&) = delete;
  double us(std::int64_t steps);

 private:
  struct Shared;
  Shared* shared_;
  std::int64_t floats_;
  int child_ = -1;
};

}  // namespace cohort::bench
