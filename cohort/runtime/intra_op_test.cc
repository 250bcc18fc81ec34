// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/intra_op.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <limits>
#include <string>
#include <vector>

#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/spin_advisor.h"
#include "cohort/runtime/topology.h"

namespace cohort::internal::runtime {
namespace {

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~ScopedEnv() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

TEST(IntraOpThreadsOfReplica, AreTheCoresDividedByReplicas) {
  const ScopedEnv omp("OMP_NUM_THREADS", nullptr);
  const ScopedEnv mkl("MKL_NUM_THREADS", nullptr);
  const IntraOpThreads as_usual(usable_cores());
  EXPECT_EQ(intra_op_threads_of_replica(0, 1), usable_cores());
  EXPECT_EQ(intra_op_threads_of_replica(0, usable_cores()), 1);
  EXPECT_EQ(intra_op_threads_of_replica(0, 1 << 20), 1);
}

TEST(IntraOpThreadsOfReplica, TheVariableWinsOverTheCores) {
  const ScopedEnv omp("OMP_NUM_THREADS", "1");
  const IntraOpThreads as_the_variable_says(1);  // OpenMP has read it when the process began
  EXPECT_EQ(intra_op_threads_of_replica(0, 1), 1);
  const IntraOpThreads five(5);
  EXPECT_EQ(intra_op_threads_of_replica(0, 2), 5);
}

// OpenMP goes on as if it were not set, with all cores for every replica.
TEST(IntraOpThreadsOfReplica, AVariableThatSaysNoNumberIsNone) {
  const ScopedEnv mkl("MKL_NUM_THREADS", nullptr);
  const IntraOpThreads as_usual(usable_cores());
  for (const char* text : {"all", "0", "-2", "2.5", "2x", " ", ",2"}) {
    const ScopedEnv omp("OMP_NUM_THREADS", text);
    EXPECT_EQ(intra_op_threads_of_replica(0, 2 * usable_cores()), 1) << text;
  }
  const IntraOpThreads five(5);
  for (const char* text : {"5", "5,2", " 5 "}) {
    const ScopedEnv omp("OMP_NUM_THREADS", text);
    EXPECT_EQ(intra_op_threads_of_replica(0, 2), 5) << text;
  }
}

TEST(IntraOpThreadsOfReplica, WhatTheProgramHasSetWinsOverTheCores) {
  const ScopedEnv omp("OMP_NUM_THREADS", nullptr);
  const ScopedEnv mkl("MKL_NUM_THREADS", nullptr);
  const IntraOpThreads set(usable_cores() + 77);
  EXPECT_EQ(intra_op_threads_of_replica(0, 1), usable_cores() + 77);
  EXPECT_EQ(intra_op_threads_of_replica(0, 2), usable_cores() + 77);
}

TEST(IntraOpThreadsOfReplica, TheOptionWinsOverAll) {
  const ScopedEnv omp("OMP_NUM_THREADS", "1");
  const IntraOpThreads set(77);
  EXPECT_EQ(intra_op_threads_of_replica(3, 2), 3);
}

TEST(ThreadsWorth, IsOneForSmallWorkAndAllForLarge) {
  EXPECT_EQ(threads_worth(0, 8), 1);
  EXPECT_EQ(threads_worth(kLeastOperations, 8), 1);
  EXPECT_EQ(threads_worth(2 * kLeastOperations, 8), 2);
  EXPECT_EQ(threads_worth(3.9 * kLeastOperations, 8), 3);
  EXPECT_EQ(threads_worth(1e15, 8), 8);
  EXPECT_EQ(threads_worth(1e15, 1), 1);
}

TEST(RunPieces, DoesEachOnce) {
  for (const int threads : {1, 2, 4}) {
    const IntraOpThreads scope(threads);
    for (const int pieces : {0, 1, 2, 7, 100}) {
      std::vector<int> done(static_cast<std::size_t>(pieces));
      run_pieces(pieces, [&](int i) { ++done[static_cast<std::size_t>(i)]; });
      EXPECT_EQ(done, std::vector<int>(done.size(), 1));
    }
  }
}

TEST(RunPieces, ComputesInTheCallersFloatMode) {
  const IntraOpThreads scope(4);
  const auto flushes = [] {
    volatile float smallest = std::numeric_limits<float>::min();
    volatile float half = smallest * 0.5F;
    return half == 0;
  };
  std::vector<char> seen(64);
  const auto look = [&](int i) { seen[static_cast<std::size_t>(i)] = flushes(); };
  run_pieces(64, look);
  EXPECT_EQ(seen, std::vector<char>(64, 0));
  {
    const FlushDenormals flush;
    run_pieces(64, look);
  }
  EXPECT_EQ(seen, std::vector<char>(64, 1));
  run_pieces(64, look);
  EXPECT_EQ(seen, std::vector<char>(64, 0));
}

// The runtime that can be told how to wait has to come first in the lookup of symbols, or regions
// spin on busy machines whatever is decided.
TEST(OpenMP, IsTheOneThatTheBuildHasChosen) {
  EXPECT_STREQ(openmp_runtime(), COHORT_TEST_OPENMP);
  update_waiting();
  update_waiting();
}

}  // namespace
}  // namespace cohort::internal::runtime
