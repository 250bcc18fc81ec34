// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/core_seats.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <thread>

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
    seats.note(0);
    seats.note(1);
    const int shared = seats.core_of(0);
    EXPECT_EQ(seats.core_of(1), shared);
    EXPECT_FALSE(seats.part(1)) << "the program allows no other core";

    CoreSeats others(2);
    others.note(0);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_TRUE(others.part(1) || others.core_of(1) != shared);
    EXPECT_NE(others.core_of(1), others.core_of(0));
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
    seats.note(2);
    EXPECT_EQ(seats.core_of(2), sched_getcpu());
    EXPECT_FALSE(seats.part(2)) << "members that were never seen take no core";
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
      seats.note(member++);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_FALSE(seats.part(member));
  });
}

}  // namespace
}  // namespace cohort::internal
