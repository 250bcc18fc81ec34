// SPDX-License-Identifier: Apache-2.0
//
// Meetings of replicas: merges, divergence, and meetings at which all work.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/runtime/barrier.h"
#include "cohort/runtime/internal/test_group.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::runtime {
namespace {

TEST(ReplicaGroupMerge, GivesArgumentsInReplicaOrderAndTheResultToAll) {
  ReplicaGroup group({.replicas = 4});
  std::vector<std::vector<int>> results(4);
  std::atomic<int> calls{0};
  run(group, [&](int replica) {
    const int mine = 10 * replica;
    const auto collect = [&](Brought<int> all) {
      ++calls;
      EXPECT_EQ(current_replica(), -1);
      EXPECT_EQ(current_replica_count(), 4);
      return std::vector<int>(all.begin(), all.end());
    };
    results[replica] = *group.merge("collect", mine, collect);
    EXPECT_EQ(current_replica(), replica);
  });
  EXPECT_EQ(calls, 1);
  for (const std::vector<int>& result : results) EXPECT_EQ(result, (std::vector{0, 10, 20, 30}));
}

TEST(ReplicaGroupMerge, MayFollowOneAnotherClosely) {
  ReplicaGroup group({.replicas = 3});
  std::atomic<int> wrong{0};
  run(group, [&](int replica) {
    for (int i = 0; i < 300; ++i) wrong += merged_sum(group, i + replica) != 3 * i + 3;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ReplicaGroupMerge, ReleasesItsResultAfterTheRun) {
  ReplicaGroup group({.replicas = 2});
  std::weak_ptr<const int> result;
  run(group, [&](int replica) {
    const auto make = [](Brought<int>) { return 1; };
    const std::shared_ptr<const int> mine = group.merge("make", kNone, make);
    if (replica == 0) result = mine;
  });
  EXPECT_TRUE(result.expired());
}

TEST(ReplicaGroupMerge, DifferentMergeCallsAreAnError) {
  ReplicaGroup group({.replicas = 3});
  testing::expect_error<FailedPrecondition>({"one on replica 0, other on replica 2"}, [&] {
    run(group, [&](int replica) { group.merge(replica == 2 ? "other" : "one", kNone, nothing); });
  });
  expect_usable(group);
}

// What replicas bring to a meeting is read by its type.
TEST(ReplicaGroupMerge, DifferentTypesAreAnError) {
  ReplicaGroup group({.replicas = 2});
  const auto merge = [&](int replica) {
    if (replica == 0) {
      group.merge("one", 1, nothing);
    } else {
      group.merge("one", 1.0, [](Brought<double>) {});
    }
  };
  EXPECT_EQ(code_of_run(group, merge), ErrorCode::kFailedPrecondition);
  const auto results = [&](int replica) {
    if (replica == 0) {
      group.merge("one", 1, [](Brought<int>) { return 1; });
    } else {
      group.merge("one", 1, [](Brought<int>) { return 1.0; });
    }
  };
  EXPECT_EQ(code_of_run(group, results), ErrorCode::kFailedPrecondition);
  expect_usable(group);
}

TEST(ReplicaGroupMerge, DivergenceNamesTheReplicasEvenIfItIsSwallowed) {
  ReplicaGroup group({.replicas = 3});
  for (const bool swallow : {false, true}) {
    const std::string text = testing::error_text<FailedPrecondition>([&] {
      run(group, [&](int replica) {
        if (replica > 0) return;
        try {
          group.merge("one", kNone, nothing);
        } catch (const FailedPrecondition&) {
          if (!swallow) throw;
        }
      });
    });
    testing::expect_words(text, {"different numbers of merge calls", "that replica 0 has reached"});
    EXPECT_TRUE(text.find("1, 2 returned") != std::string::npos ||
                text.find("replica 1 returned") != std::string::npos ||
                text.find("replica 2 returned") != std::string::npos)
        << text;
    expect_usable(group);
  }
}

TEST(ReplicaGroupMerge, AnExceptionReachesTheCallerEvenIfReplica0SwallowsIt) {
  ReplicaGroup group({.replicas = 3});
  const auto fail = [](Brought<int>) { throw Failure(17); };
  for (bool swallow : {false, true}) {
    std::atomic<int> passed{0};
    const auto body = [&](int) {
      try {
        group.merge("one", kNone, fail);
        ++passed;
      } catch (const std::exception&) {
        if (!swallow) throw;
      }
      group.barrier();
      ++passed;
    };
    try {
      run(group, body);
      FAIL();
    } catch (const Failure& e) {
      EXPECT_EQ(e.replica, 17);
    }
    EXPECT_EQ(passed, 0);
    expect_usable(group);
  }
}

TEST(ReplicaGroupMerge, AFailureOnTheWayUnwindsTheOthers) {
  ReplicaGroup group({.replicas = 3});
  const auto body = [&](int replica) {
    if (replica == 1) throw Failure(1);
    merged_sum(group, 1);
  };
  EXPECT_THROW(run(group, body), Failure);
  int sum = 0;
  run(group, [&](int replica) {
    const int all = merged_sum(group, 2);
    if (replica == 0) sum = all;
  });
  EXPECT_EQ(sum, 6);
}

TEST(ReplicaGroupMerge, EpochsCountMeetings) {
  ReplicaGroup group({.replicas = 2});
  std::vector<std::vector<uint64_t>> epochs(2);
  for (int i = 0; i < 2; ++i) {
    run(group, [&](int replica) {
      epochs[replica].push_back(group.epoch(replica));
      group.barrier();
      epochs[replica].push_back(group.epoch(replica));
    });
  }
  EXPECT_EQ(epochs[0], (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(epochs[1], epochs[0]);
}

// --- meetings in which all work -----------------------------------------------

TEST(ReplicaGroupMeet, AllWorkWithAllArgumentsAndNobodyLeavesEarly) {
  for (const int replicas : {1, 2, 5}) {
    ReplicaGroup group({.replicas = replicas});
    run(group, [&](int replica) {
      for (int round = 0; round < 200; ++round) {
        int mine = replica + round;  // others read it while they work
        int sum = 0;
        group.meet("add", mine, [&](Brought<int> all) {
          for (const int one : all) sum += one;
        });
        mine = -1000;
        ASSERT_EQ(sum, replicas * round + replicas * (replicas - 1) / 2);
      }
    });
  }
}

TEST(ReplicaGroupMeet, OneReplicasExceptionUnwindsAllEvenIfSwallowed) {
  ReplicaGroup group({.replicas = 3});
  for (const int failing : {0, 2}) {
    for (const bool swallow : {false, true}) {
      std::atomic<int> passed{0};
      try {
        run(group, [&](int replica) {
          try {
            group.meet("one", kNone, [&](Brought<int>) {
              if (replica == failing) throw Failure(replica);
            });
            ++passed;
          } catch (const std::exception&) {
            if (!swallow) throw;
          }
          group.barrier();
          ++passed;
        });
        FAIL();
      } catch (const Failure& e) {
        EXPECT_EQ(e.replica, failing);
      }
      EXPECT_EQ(passed, 0);
      expect_usable(group);
    }
  }
}

TEST(ReplicaGroupMeet, DifferentNamesAndMergesAreAnErrorOnAll) {
  ReplicaGroup group({.replicas = 3});
  const auto work = [](Brought<int>) {};
  EXPECT_EQ(
      code_of_run(group,
                  [&](int replica) { group.meet(replica == 1 ? "other" : "one", kNone, work); }),
      ErrorCode::kFailedPrecondition);
  for (const int merging : {0, 1}) {
    EXPECT_EQ(code_of_run(group,
                          [&](int replica) {
                            if (replica == merging) {
                              group.merge("other", kNone, nothing);
                            } else {
                              group.meet("one", kNone, work);
                            }
                          }),
              ErrorCode::kFailedPrecondition);
    EXPECT_EQ(code_of_run(group,
                          [&](int replica) {
                            if (replica == merging) {
                              group.barrier();
                            } else {
                              group.meet("one", kNone, work);
                            }
                          }),
              ErrorCode::kFailedPrecondition);
  }
  expect_usable(group);
}

TEST(ReplicaGroupMeet, AReplicaThatHasLeftIsDivergence) {
  ReplicaGroup group({.replicas = 2});
  EXPECT_EQ(code_of_run(group,
                        [&](int replica) {
                          if (replica == 0) {
                            group.meet("one", kNone, [](Brought<int>) {});
                          }
                        }),
            ErrorCode::kFailedPrecondition);
  expect_usable(group);
}

}  // namespace
}  // namespace cohort::internal::runtime
