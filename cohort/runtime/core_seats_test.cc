// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/core_seats.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <functional>
#include <latch>
#include <thread>

#include "cohort/testing/deadline.h"

namespace cohort::internal {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

cpu_set_t only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return set;
}

/// A thread whose cores the test may change.
void on_a_thread(const std::function<void()>& body) { std::jthread thread(body); }

TEST(CoreSeats, WhoSharesACoreGoesToAFreeOneAndMayStillRunEverywhere) {
  on_a_thread([] {
    const cpu_set_t before = allowed();
    if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "there is one core";
    CoreSeats seats(2);
    // This thread plays both members; it cannot leave its core until it is told to.
    const cpu_set_t here = only(sched_getcpu());
    ASSERT_EQ(sched_setaffinity(0, sizeof here, &here), 0);
    seats.sit(0);
    seats.sit(1);
    const int shared = seats.core_of(0);
    EXPECT_EQ(seats.core_of(1), shared);
    seats.helper(1).will_park();
    EXPECT_EQ(seats.core_of(1), shared) << "the program allows no other core";

    CoreSeats others(2);
    others.sit(0);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    // Not at the first wait: what was seen once may be over.
    testing::run_with_deadline(std::chrono::seconds(60), [&] {
      do {
        others.helper(1).will_park();
      } while (others.core_of(1) == others.core_of(0));
    });
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  });
}

TEST(CoreSeats, WhoIsAloneStays) {
  on_a_thread([] {
    const cpu_set_t here = only(sched_getcpu());
    ASSERT_EQ(sched_setaffinity(0, sizeof here, &here), 0);
    CoreSeats seats(3);
    EXPECT_EQ(seats.core_of(2), -1);
    seats.sit(2);
    EXPECT_EQ(seats.core_of(2), sched_getcpu());
    seats.helper(2).will_park();
    EXPECT_EQ(seats.core_of(2), sched_getcpu()) << "members that were never seen take no core";
  });
}

// More members than cores: somebody has to share.
TEST(CoreSeats, WhereNoCoreIsFreeNobodyMoves) {
  on_a_thread([] {
    const cpu_set_t before = allowed();
    CoreSeats seats(CPU_COUNT(&before) + 1);
    int member = 0;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before)) continue;
      const cpu_set_t there = only(core);
      ASSERT_EQ(sched_setaffinity(0, sizeof there, &there), 0);
      seats.sit(member++);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    seats.helper(member).will_park();
    EXPECT_EQ(seats.core_of(member), sched_getcpu());
  });
}

// A thread that blocks looks like one that was preempted: it is fetched, and nothing of it changes.
TEST(CoreSeats, WhoIsFetchedMayStillRunWhereItMight) {
  CoreSeats seats(3);
  std::latch sits(2);
  std::latch looked(1);
  cpu_set_t after[2];
  const auto blocks = [&](int member, const cpu_set_t& may_run_on) {
    ASSERT_EQ(sched_setaffinity(0, sizeof may_run_on, &may_run_on), 0);
    seats.sit(member);
    sits.count_down();
    looked.wait();
    after[member - 1] = allowed();
  };
  const cpu_set_t all = allowed();
  const cpu_set_t one = only(sched_getcpu());
  std::jthread free([&] { blocks(1, all); });
  std::jthread pinned([&] { blocks(2, one); });
  sits.wait();
  seats.sit(0);
  ParkingHelper& helper = seats.helper(0);
  helper.will_park();
  for (int i = 0; i < 3; ++i) helper.still_waits();
  helper.has_parked();
  looked.count_down();
  free.join();
  pinned.join();
  EXPECT_TRUE(CPU_EQUAL(&after[0], &all));
  EXPECT_TRUE(CPU_EQUAL(&after[1], &one));
}

}  // namespace
}  // namespace cohort::internal
