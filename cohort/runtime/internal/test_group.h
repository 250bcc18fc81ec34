// SPDX-License-Identifier: Apache-2.0
//
// What the tests of replica groups share.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>

#include "cohort/base/error.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/deadline.h"

namespace cohort::internal::runtime {

using std::chrono::seconds;
using testing::run_with_deadline;

// A failure with a number, to see that an exception arrives as it was thrown.
struct Failure : std::runtime_error {
  explicit Failure(int of) : std::runtime_error("failure"), replica(of) {}
  int replica;
};

inline void run(ReplicaGroup& group, base::FunctionRef<void(int)> body) {
  run_with_deadline(seconds(60), [&] { group.run(body); });
}

/// The code of the cohort::Error that run() throws; nullopt if it throws none.
inline std::optional<ErrorCode> code_of_run(ReplicaGroup& group,
                                            base::FunctionRef<void(int)> body) {
  try {
    run(group, body);
  } catch (const Error& e) {
    return e.code();
  }
  return std::nullopt;
}

/// Every replica runs, and meets the others: what "usable" means.
inline void expect_usable(ReplicaGroup& group) {
  std::atomic<int> met{0};
  run(group, [&](int) {
    group.barrier();
    ++met;
  });
  EXPECT_EQ(met, group.size());
}

/// For meetings whose arguments do not matter.
inline constexpr int kNone = 0;
inline constexpr auto nothing = [](Brought<int>) {};

/// The sum of one int per replica, by a merge.
inline int merged_sum(ReplicaGroup& group, int mine) {
  const auto sum = [](Brought<int> all) {
    int total = 0;
    for (const int one : all) total += one;
    return total;
  };
  return *group.merge("sum", mine, sum);
}

}  // namespace cohort::internal::runtime
