// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/core_seats.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <functional>
#include <thread>

namespace cohort::internal::runtime {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

void allow(const cpu_set_t& set) { ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0); }

void allow_only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  allow(set);
}

/// A thread whose cores a test may change. It plays all members.
void on_a_thread(const std::function<void()>& body) { std::jthread thread(body); }

/// Parks twice, so far apart that the core has been shared for long.
void park_for_long(CoreSeats& seats, int member) {
  seats.part(member);
  std::this_thread::sleep_for(2 * CoreSeats::kLongShared);
  seats.part(member);
}

TEST(CoreSeats, WhoSharesACoreForLongGoesToAFreeOne) {
  on_a_thread([] {
    const cpu_set_t before = allowed();
    if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "there is one core";
    CoreSeats seats(2);
    const int shared = sched_getcpu();
    // Again and again: the scheduler may move the thread in between, and then there is no reason.
    for (int moved = 0; moved < 20; ++moved) {
      allow_only(shared);
      seats.sit(0);
      seats.part(1);
      EXPECT_EQ(seats.core_of(1), shared) << "shared only now";
      allow(before);
      std::this_thread::sleep_for(2 * CoreSeats::kLongShared);
      seats.part(1);
      EXPECT_NE(seats.core_of(1), seats.core_of(0));
      const cpu_set_t after = allowed();
      EXPECT_TRUE(CPU_EQUAL(&before, &after)) << "it may still run wherever it might";
    }
  });
}

TEST(CoreSeats, NobodyLeavesTheCoresThatTheProgramAllows) {
  on_a_thread([] {
    const int here = sched_getcpu();
    allow_only(here);
    CoreSeats seats(2);
    seats.sit(0);
    park_for_long(seats, 1);
    EXPECT_EQ(seats.core_of(1), here);
    EXPECT_EQ(sched_getcpu(), here);
    const cpu_set_t after = allowed();
    EXPECT_EQ(CPU_COUNT(&after), 1);
  });
}

TEST(CoreSeats, WhoRestsTakesNoCore) {
  on_a_thread([] {
    const cpu_set_t all = allowed();
    allow_only(sched_getcpu());
    CoreSeats seats(3);
    EXPECT_EQ(seats.core_of(2), -1);
    seats.sit(0);
    EXPECT_EQ(seats.core_of(0), sched_getcpu());
    seats.rest(0);
    EXPECT_EQ(seats.core_of(0), -1);
    const int here = sched_getcpu();
    park_for_long(seats, 2);
    EXPECT_EQ(seats.core_of(2), here);
    allow(all);
  });
}

// More members than cores: somebody has to share.
TEST(CoreSeats, WhereNoCoreIsFreeNobodyMoves) {
  on_a_thread([] {
    const cpu_set_t all = allowed();
    const int members = CPU_COUNT(&all) + 1;
    CoreSeats seats(members);
    int last = 0;
    for (int core = 0, member = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &all)) continue;
      allow_only(last = core);
      seats.sit(member++);
    }
    seats.part(members - 1);
    EXPECT_EQ(seats.core_of(members - 1), last);
    allow(all);
    std::this_thread::sleep_for(2 * CoreSeats::kLongShared);
    seats.part(members - 1);
    const cpu_set_t after = allowed();
    EXPECT_TRUE(CPU_EQUAL(&all, &after));
  });
}

}  // namespace
}  // namespace cohort::internal::runtime
