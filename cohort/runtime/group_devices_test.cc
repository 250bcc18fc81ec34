// SPDX-License-Identifier: Apache-2.0
//
// Replicas on devices that go on working when a call has returned.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cohort/runtime/internal/test_backend.h"
#include "cohort/runtime/internal/test_group.h"

namespace cohort::internal::runtime {
namespace {

using Lines = std::vector<std::string>;

// What the log says of one replica's thread and of the fences, in order.
Lines sorted(Lines lines) {
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(GroupDevices, ARunStartsMeetsAndEndsWithFences) {
  TestBackend gpus;
  ReplicaGroup group({.replicas = 2, .devices = {"GPU:0", "GPU:1"}});
  run(group, [](int) {});
  const Lines empty = gpus.log().take();
  // The caller shows what it has started; each replica waits for that, works, and shows its own.
  ASSERT_EQ(empty.size(), 2u + 2 * (1 + 2 + 1 + 1) + 2);
  EXPECT_EQ(Lines(empty.begin(), empty.begin() + 2), (Lines{"publish GPU:0", "publish GPU:1"}));
  EXPECT_EQ(Lines(empty.end() - 2, empty.end()), (Lines{"await GPU:0", "await GPU:1"}));
  EXPECT_EQ(sorted({empty.begin() + 2, empty.end() - 2}),
            (Lines{"await GPU:0", "await GPU:0", "await GPU:1", "await GPU:1", "enter GPU:0",
                   "enter GPU:1", "leave GPU:0", "leave GPU:1", "publish GPU:0", "publish GPU:1"}));

  run(group, [&](int replica) {
    group.barrier();
    if (replica == 0) gpus.log().add("met");
    group.barrier();
  });
  Lines met = gpus.log().take();
  const auto middle = std::find(met.begin(), met.end(), "met");
  ASSERT_NE(middle, met.end());
  // Behind a meeting all has been published that was started before it.
  EXPECT_GE(std::count(met.begin(), middle, "publish GPU:0"), 2);
  EXPECT_GE(std::count(met.begin(), middle, "publish GPU:1"), 2);
  EXPECT_GE(std::count(met.begin(), middle, "await GPU:1"), 2);
  for (const char* device : {"publish GPU:0", "publish GPU:1"}) {
    EXPECT_EQ(std::count(met.begin(), met.end(), device), 1 + 2 + 1) << device;
  }
  for (const char* device : {"await GPU:0", "await GPU:1"}) {
    EXPECT_EQ(std::count(met.begin(), met.end(), device), 2 + 2 * 2 + 1) << device;
  }
}

TEST(GroupDevices, MergesAreTwoMeetings) {
  TestBackend gpus;
  ReplicaGroup group({.replicas = 2, .devices = {"GPU:0", "GPU:1"}});
  run(group, [&](int replica) { EXPECT_EQ(merged_sum(group, replica + 1), 3); });
  EXPECT_EQ(gpus.log().count("publish GPU:1"), 1 + 2 + 1);
}

TEST(GroupDevices, AFailedRunLeavesItsDevices) {
  TestBackend gpus;
  ReplicaGroup group({.replicas = 2, .devices = {"GPU:0", "GPU:1"}});
  EXPECT_THROW(run(group,
                   [&](int replica) {
                     if (replica == 1) throw Failure(1);
                     group.barrier();
                   }),
               Failure);
  for (const char* device : {"GPU:0", "GPU:1"}) {
    EXPECT_EQ(gpus.log().count(str_cat("enter ", device)), 1);
    EXPECT_EQ(gpus.log().count(str_cat("leave ", device)), 1);
  }
  expect_usable(group);
}

TEST(GroupDevices, AReplicaAloneIsOnItsDevice) {
  TestBackend gpus;
  ReplicaGroup group({.replicas = 1, .devices = {"GPU:3"}});
  run(group, [&](int) { gpus.log().add("body"); });
  EXPECT_EQ(gpus.log().take(), (Lines{"publish GPU:3", "enter GPU:3", "await GPU:3", "body",
                                      "publish GPU:3", "leave GPU:3", "await GPU:3"}));
}

TEST(GroupDevices, MergesShowWhatTheyWriteElsewhere) {
  TestBackend gpus;
  ReplicaGroup group({.replicas = 2, .devices = {"CPU:0", "GPU:1"}});
  run(group, [&](int replica) {
    const auto written = [&](Brought<int>) { gpus.log().add("written"); };
    group.merge("write", replica, written);
  });
  const Lines lines = gpus.log().take();
  const auto written = std::find(lines.begin(), lines.end(), "written");
  ASSERT_NE(written, lines.end());
  // Beside what the replica shows where it meets the other one, and at its end.
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "publish GPU:1"), 1 + 2 + 1 + 1);
  EXPECT_GE(std::count(written, lines.end(), "publish GPU:1"), 2);
}

TEST(GroupDevices, NeedABackend) {
  EXPECT_THROW(ReplicaGroup({.replicas = 1, .devices = {"TPU:0"}}), Unimplemented);
}

TEST(GroupDevices, AreOneForEachReplica) {
  EXPECT_THROW(ReplicaGroup({.replicas = 2, .devices = {"CPU:0"}}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::internal::runtime
