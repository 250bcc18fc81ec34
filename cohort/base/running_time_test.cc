// SPDX-License-Identifier: Apache-2.0
#include "cohort/base/running_time.h"

#include <gtest/gtest.h>

namespace cohort::internal::base {
namespace {

using std::chrono::milliseconds;

TEST(RunningTimes, LeaveOutWhatTheProcessWasStopped) {
  BootClock::time_point now = BootClock::now();
  RunningTime running(now);
  const auto begin = running.now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(running.look(now += milliseconds(250)).count(), 0);
  EXPECT_EQ(running.now() - begin, milliseconds(750));
  EXPECT_EQ(running.look(now += milliseconds(60'000)), milliseconds(59'750));
  EXPECT_EQ(running.now() - begin, milliseconds(1000));
}

TEST(BootClocks, GoOn) {
  const auto first = BootClock::now();
  EXPECT_GT(first.time_since_epoch().count(), 0);
  EXPECT_GE(BootClock::now(), first);
}

}  // namespace
}  // namespace cohort::internal::base
