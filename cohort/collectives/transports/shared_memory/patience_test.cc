// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/patience.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace cohort::internal::collectives {
namespace {

int looks_in_vain(Patience& patience) {
  int looks = 0;
  EXPECT_FALSE(patience.look_for([] { return false; }, [&] { ++looks; }));
  return looks;
}

TEST(PatienceTest, LooksAsLongAsASleepTakesHoweverOftenItWasInVain) {
  Patience patience(2000);
  EXPECT_EQ(looks_in_vain(patience), 2000);
  for (int i = 0; i < 20; ++i) EXPECT_GE(looks_in_vain(patience), 200);
}

TEST(PatienceTest, OnSharedCoresGivesUpSoonerEachTimeItWasInVain) {
  Patience patience(0);
  const int most = looks_in_vain(patience);
  EXPECT_LE(most, 100);
  for (int i = 0; i < 20; ++i) looks_in_vain(patience);
  EXPECT_LE(looks_in_vain(patience), 16);
}

TEST(PatienceTest, SeesAtOnceWhatIsOver) {
  for (const int most : {0, 2000}) {
    Patience patience(most);
    EXPECT_TRUE(patience.look_for([] { return true; }, [] { FAIL(); }));
  }
}

TEST(PatienceTest, SeesWhatComesWhileItLooks) {
  for (const int most : {0, 2000}) {
    Patience patience(most);
    std::atomic<bool> asked = false;
    std::atomic<bool> here = false;
    std::thread peer([&] {
      while (!asked.load(std::memory_order_acquire)) std::this_thread::yield();
      here.store(true, std::memory_order_release);
    });
    const auto is_over = [&] { return here.load(std::memory_order_acquire); };
    const auto ask = [&] { asked.store(true, std::memory_order_release); };
    while (!patience.look_for(is_over, ask)) ask();
    EXPECT_TRUE(here.load());
    peer.join();
  }
}

}  // namespace
}  // namespace cohort::internal::collectives
