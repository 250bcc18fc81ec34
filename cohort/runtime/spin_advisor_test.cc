// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/spin_advisor.h"

#include <gtest/gtest.h>

namespace cohort::internal::runtime {
namespace {

/// Feeds an advisor windows of a given rate.
struct Process {
  SpinAdvisor advisor;
  CoreUse total;
  // Preemptions per CPU second, over so many windows of twice the least length.
  void live(double rate, int windows) {
    for (int i = 0; i < windows; ++i) {
      total.cpu_seconds += 2 * SpinAdvisor::kWindow;
      total.preemptions += static_cast<int64_t>(rate * 2 * SpinAdvisor::kWindow);
      advisor.update(total);
    }
  }
  int windows_until_spinning(double rate) {
    int windows = 0;
    for (; !advisor.may_spin() && windows < 1000; ++windows) live(rate, 1);
    return windows;
  }
};

TEST(SpinAdvisor, LetsThreadsSpinOnAQuietMachine) {
  Process process;
  EXPECT_TRUE(process.advisor.may_spin());
  process.live(100, 1000);
  EXPECT_TRUE(process.advisor.may_spin());
}

TEST(SpinAdvisor, ParksThemInTheFirstBusyWindow) {
  Process process;
  process.live(50, 100);
  process.live(1000, 1);
  EXPECT_FALSE(process.advisor.may_spin());
  process.live(1000, 100);
  EXPECT_FALSE(process.advisor.may_spin());
}

TEST(SpinAdvisor, LetsThemSpinAgainWhenItHasBeenCalmForAWhile) {
  Process process;
  process.live(50, 1000);
  process.live(1000, 10);
  EXPECT_EQ(process.windows_until_spinning(50), SpinAdvisor::kFewestCalm);
}

TEST(SpinAdvisor, OneBusyWindowBeginsTheCalmAnew) {
  Process process;
  process.live(50, 1000);
  process.live(1000, 1);
  process.live(50, SpinAdvisor::kFewestCalm - 1);
  process.live(1000, 1);
  process.live(50, SpinAdvisor::kFewestCalm - 1);
  EXPECT_FALSE(process.advisor.may_spin());
}

TEST(SpinAdvisor, IsSlowerToTryAgainWhereTryingFails) {
  Process process;
  process.live(50, 1000);
  process.live(1000, 1);
  int before = 0;
  for (int i = 0; i < 3; ++i) {
    const int windows = process.windows_until_spinning(50);
    EXPECT_GT(windows, before);
    before = windows;
    process.live(1000, 1);
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_LE(process.windows_until_spinning(50), SpinAdvisor::kMostCalm);
    process.live(1000, 1);
  }
}

// What is too short to tell anything changes nothing.
TEST(SpinAdvisor, WaitsForAWholeWindow) {
  SpinAdvisor advisor;
  EXPECT_TRUE(advisor.update({SpinAdvisor::kWindow / 2, 1000}));
  EXPECT_FALSE(advisor.update({SpinAdvisor::kWindow, 1000}));
}

TEST(CoreUse, Grows) {
  const CoreUse before = core_use();
  volatile double x = 1;
  while (core_use().cpu_seconds <= before.cpu_seconds) x = x * 1.0000001;
  EXPECT_GE(core_use().preemptions, before.preemptions);
}

}  // namespace
}  // namespace cohort::internal::runtime
