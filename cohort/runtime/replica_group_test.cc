// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/replica_group.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/float_mode.h"
#include "cohort/runtime/internal/test_group.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/replica_scope.h"

namespace cohort::internal::runtime {
namespace {

// Half of the smallest normal float; zero where subnormal numbers are flushed.
bool flushes_denormals() {
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float half = smallest * 0.5F;
  return half == 0;
}

TEST(ReplicaGroup, RunsAllReplicasAtOnce) {
  ReplicaGroup group({.replicas = 4});
  std::latch together(4);
  std::vector<int> ran(4, 0);
  run(group, [&](int replica) {
    together.arrive_and_wait();  // returns only if all are inside
    EXPECT_EQ(current_replica(), replica);
    EXPECT_EQ(current_replica_count(), 4);
    EXPECT_EQ(current_replica_group(), &group);
    ++ran[replica];
  });
  EXPECT_EQ(ran, (std::vector<int>{1, 1, 1, 1}));
  EXPECT_EQ(current_replica(), -1);
  EXPECT_EQ(current_replica_count(), 1);
  EXPECT_EQ(current_replica_group(), nullptr);
}

TEST(ReplicaGroup, KeepsItsThreads) {
  ReplicaGroup group({.replicas = 3});
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  run(group, [&](int replica) { first[replica] = std::this_thread::get_id(); });
  run(group, [&](int replica) { second[replica] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_NE(first[1], first[2]);
  // On this thread, in truth; run_with_deadline calls it here.
  EXPECT_EQ(first[0], std::this_thread::get_id());
}

TEST(ReplicaGroup, OfOneIsTheIdentity) {
  ReplicaGroup group({.replicas = 1});
  int sum = 0;
  run(group, [&](int replica) {
    EXPECT_EQ(replica, 0);
    group.barrier();
    sum = merged_sum(group, 5);
  });
  EXPECT_EQ(sum, 5);
  EXPECT_THROW(run(group, [](int) { throw Failure(0); }), Failure);
  expect_usable(group);
}

TEST(ReplicaGroup, RefusesNoReplicas) {
  EXPECT_THROW(ReplicaGroup({.replicas = 0}), InvalidArgument);
  EXPECT_THROW(ReplicaGroup({.replicas = -1}), InvalidArgument);
}

TEST(ReplicaGroup, SurvivesAThousandQuickRuns) {
  ReplicaGroup group({.replicas = 2});
  std::vector<int> counts(2, 0);
  for (int i = 0; i < 1000; ++i) run(group, [&](int replica) { ++counts[replica]; });
  EXPECT_EQ(counts, (std::vector<int>{1000, 1000}));
}

TEST(ReplicaGroup, WorksWithMoreReplicasThanCores) {
  ReplicaGroup group({.replicas = 8});
  std::vector<int> sums(8, 0);
  for (int round = 0; round < 50; ++round) {
    run(group, [&](int replica) {
      for (int i = 0; i < 4; ++i) sums[replica] += merged_sum(group, replica);
    });
  }
  EXPECT_EQ(sums, std::vector<int>(8, 50 * 4 * 28));
}

TEST(ReplicaGroup, SerialisesRunsOfSeveralCallers) {
  ReplicaGroup group({.replicas = 2});
  int inside = 0;  // a plain int: ThreadSanitizer sees it if two runs overlap
  int runs = 0;
  int overlaps = 0;
  run_with_deadline(seconds(60), [&] {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          group.run([&](int replica) {
            if (replica == 0) overlaps += ++inside != 1;
            group.barrier();
            if (replica == 1) ++runs;
            group.barrier();
            if (replica == 0) --inside;
          });
        }
      });
    }
  });
  EXPECT_EQ(inside, 0);
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(runs, 200);
}

TEST(ReplicaGroup, CanBeDestroyedAtOnce) {
  for (int i = 0; i < 20; ++i) {
    ReplicaGroup unused({.replicas = 3});
    ReplicaGroup used({.replicas = 3});
    run(used, [](int) {});
  }
}

// --- failures ---------------------------------------------------------------

TEST(ReplicaGroupFailure, ThrowsTheLowestReplicasExceptionAsThrown) {
  ReplicaGroup group({.replicas = 4});
  std::latch together(4);
  try {
    run(group, [&](int replica) {
      together.arrive_and_wait();
      if (replica >= 2) throw Failure(replica);
    });
    FAIL();
  } catch (const Failure& e) {
    EXPECT_EQ(e.replica, 2);
  }
  expect_usable(group);
}

TEST(ReplicaGroupFailure, DoesNotReportThoseWhoOnlyFollow) {
  ReplicaGroup group({.replicas = 3});
  for (int failing = 0; failing < 3; ++failing) {
    std::atomic<int> unwound{0};
    const auto body = [&](int replica) {
      if (replica == failing) throw Failure(replica);
      try {
        group.barrier();
      } catch (const PeerFailed&) {
        ++unwound;
        throw;
      }
    };
    try {
      run(group, body);
      FAIL();
    } catch (const Failure& e) {
      EXPECT_EQ(e.replica, failing);
    }
    EXPECT_EQ(unwound, 2);
    expect_usable(group);
  }
}

// The failing replica may come at any moment of the others' way into the barrier.
TEST(ReplicaGroupFailure, NeverLosesAWakeUp) {
  ReplicaGroup group({.replicas = 3});
  for (int round = 0; round < 300; ++round) {
    const auto body = [&](int replica) {
      for (int i = 0; i < 3; ++i) {
        if (replica == round % 3 && i == round % 2) throw Failure(replica);
        group.barrier();
      }
    };
    ASSERT_THROW(run(group, body), Failure);
  }
  expect_usable(group);
}

TEST(ReplicaGroupFailure, SwallowingTheCancellationDoesNotLetAReplicaPass) {
  ReplicaGroup group({.replicas = 2});
  int passed = 0;
  const auto body = [&](int replica) {
    if (replica == 0) throw Failure(0);
    for (int i = 0; i < 3; ++i) {
      try {
        group.barrier();
        ++passed;
      } catch (const Cancelled&) {
      }
    }
  };
  EXPECT_THROW(run(group, body), Failure);
  EXPECT_EQ(passed, 0);
  expect_usable(group);
}

TEST(ReplicaGroupFailure, DifferentNumbersOfMergesAreDivergence) {
  ReplicaGroup group({.replicas = 3});
  for (int leaving = 0; leaving < 3; ++leaving) {
    for (bool swallow : {false, true}) {
      const auto body = [&](int replica) {
        merged_sum(group, 1);
        if (replica == leaving) return;
        try {
          merged_sum(group, 1);
        } catch (const Error&) {
          if (!swallow) throw;
        }
      };
      EXPECT_EQ(code_of_run(group, body), ErrorCode::kFailedPrecondition);
      expect_usable(group);
    }
  }
}

TEST(ReplicaGroupFailure, RunInsideRunIsRefused) {
  ReplicaGroup group({.replicas = 2});
  EXPECT_EQ(code_of_run(group, [&](int) { group.run([](int) {}); }),
            ErrorCode::kFailedPrecondition);
  const auto inside_merge = [&](int) {
    group.merge("run", kNone, [&](Brought<int>) { group.run([](int) {}); });
  };
  EXPECT_EQ(code_of_run(group, inside_merge), ErrorCode::kFailedPrecondition);
  expect_usable(group);
}

TEST(ReplicaGroupFailure, MeetingOutsideOfAReplicaIsRefused) {
  ReplicaGroup group({.replicas = 2});
  ReplicaGroup other({.replicas = 1});
  EXPECT_THROW(group.barrier(), FailedPrecondition);
  EXPECT_THROW(group.merge("one", kNone, nothing), FailedPrecondition);
  EXPECT_EQ(code_of_run(other, [&](int) { group.barrier(); }), ErrorCode::kFailedPrecondition);
  const auto nested_merge = [&](int) {
    group.merge("outer", kNone, [&](Brought<int>) { group.merge("inner", kNone, nothing); });
  };
  EXPECT_EQ(code_of_run(group, nested_merge), ErrorCode::kFailedPrecondition);
  expect_usable(group);
}

TEST(ReplicaGroup, NumbersItsRuns) {
  ReplicaGroup group({.replicas = 2});
  EXPECT_EQ(group.run_number(), 0U);
  uint64_t first = 0, second = 0;
  run(group, [&](int replica) {
    if (replica == 0) first = group.run_number();
  });
  run(group, [&](int replica) {
    if (replica == 1) second = group.run_number();
  });
  EXPECT_NE(first, 0U);
  EXPECT_NE(second, first);
  EXPECT_EQ(group.run_number(), 0U);
  EXPECT_EQ(ReplicaGroup({.replicas = 1}).run_number(), 1U);
}

TEST(ReplicaThread, FlushesDenormalsAndRestoresTheCaller) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "x86-64 only";
#endif
  ReplicaGroup group({.replicas = 2});
  ASSERT_FALSE(flushes_denormals());
  std::vector<int> flushes(2, 0);
  run(group, [&](int replica) { flushes[replica] = flushes_denormals(); });
  EXPECT_EQ(flushes, (std::vector<int>{1, 1}));
  EXPECT_FALSE(flushes_denormals());
  EXPECT_THROW(run(group, [](int) { throw Failure(0); }), Failure);
  EXPECT_FALSE(flushes_denormals());
  {
    FlushDenormals scope;
    run(group, [](int) {});
    EXPECT_TRUE(flushes_denormals());
  }
  EXPECT_FALSE(flushes_denormals());
}

TEST(ReplicaThread, HasItsOwnNumberOfIntraOpThreads) {
  const int before = at::get_num_threads();
  for (int threads : {1, 3}) {
    ReplicaGroup group({.replicas = 3, .intra_op_threads = threads});
    std::vector<int> inside(3, 0);
    run(group, [&](int replica) { inside[replica] = at::get_num_threads(); });
    EXPECT_EQ(inside, std::vector<int>(3, threads));
    EXPECT_EQ(at::get_num_threads(), before);
  }
  int fresh = 0;  // the process's default is as before, too
  std::jthread([&] { fresh = at::get_num_threads(); }).join();
  EXPECT_EQ(fresh, before);
}

TEST(ReplicaThread, ZeroIntraOpThreadsLeavesThemAlone) {
  const IntraOpThreads two(2);
  ReplicaGroup group({.replicas = 2});
  int inside = 0;
  run(group, [&](int replica) {
    if (replica == 0) inside = at::get_num_threads();
  });
  EXPECT_EQ(inside, 2);
}

TEST(IntraOpThreads, IsScopedAndNests) {
  const int before = at::get_num_threads();
  {
    IntraOpThreads four(4);
    EXPECT_EQ(at::get_num_threads(), 4);
    {
      IntraOpThreads nothing(0);
      IntraOpThreads one(1);
      EXPECT_EQ(at::get_num_threads(), 1);
    }
    EXPECT_EQ(at::get_num_threads(), 4);
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(ReplicaScope, NestsAndRestores) {
  ReplicaScope outer(nullptr, 3, 5);
  {
    ReplicaScope cross(nullptr, -1, 5);
    EXPECT_EQ(current_replica(), -1);
  }
  EXPECT_EQ(current_replica(), 3);
  EXPECT_EQ(current_replica_count(), 5);
  int elsewhere = 0;
  std::jthread([&] { elsewhere = current_replica(); }).join();
  EXPECT_EQ(elsewhere, -1);
}

TEST(ReplicaGroup, SaysWhetherCoresShareACache) {
  ReplicaGroup one({.replicas = 1});
  EXPECT_TRUE(one.cores_share_cache());
  ReplicaGroup two({.replicas = 2});
  run_with_deadline(seconds(60), [&] { two.cores_share_cache(); });
  expect_usable(two);
}

}  // namespace
}  // namespace cohort::internal::runtime
