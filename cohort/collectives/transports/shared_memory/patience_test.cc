// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/transports/shared_memory/patience.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace cohort::internal::collectives {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

// A processor of the test's own, on which only what is named here takes time.
struct Processor {
  nanoseconds now{0};
  nanoseconds of_a_look{0};
  nanoseconds of_a_yield{0};
  int yields = 0;
};
thread_local Processor t_processor;

Patience::Means means(nanoseconds of_a_look, nanoseconds of_a_yield) {
  t_processor = {.of_a_look = of_a_look, .of_a_yield = of_a_yield};
  return {.now = [] { return Patience::Clock::time_point(t_processor.now); },
          .relax = [] { t_processor.now += t_processor.of_a_look; },
          .yield =
              [] {
                t_processor.now += t_processor.of_a_yield;
                ++t_processor.yields;
              }};
}

// How long.
nanoseconds looks_in_vain(Patience& patience, nanoseconds meanwhile = {}) {
  const nanoseconds began = t_processor.now;
  EXPECT_FALSE(patience.look_for([] { return false; }, [&] { t_processor.now += meanwhile; }));
  return t_processor.now - began;
}

TEST(PatienceTest, LooksAsLongAsASleepTakesHoweverOftenItWasInVain) {
  for (const nanoseconds look : {nanoseconds(5), nanoseconds(15), nanoseconds(60)}) {
    Patience patience(2000, means(look, {}));
    EXPECT_GE(looks_in_vain(patience), 2000 * look);
    nanoseconds last{};
    for (int i = 0; i < 20; ++i) {
      last = looks_in_vain(patience);
      EXPECT_GE(last, microseconds(10)) << look.count();
    }
    EXPECT_LE(last, microseconds(12)) << look.count();
  }
}

TEST(PatienceTest, OnSharedCoresGivesUpSoonerEachTimeItWasInVain) {
  Patience patience(0, means({}, microseconds(1)));
  const nanoseconds most = looks_in_vain(patience);
  EXPECT_LE(most, microseconds(100));
  for (int i = 0; i < 20; ++i) looks_in_vain(patience);
  EXPECT_LE(looks_in_vain(patience), microseconds(16));
}

// Whoever waits looks at its deadline then.
TEST(PatienceTest, HandsItsCoreOnForAMillisecondAtMost) {
  Patience patience(0, means({}, microseconds(299)));
  EXPECT_LE(looks_in_vain(patience), microseconds(1299));
  EXPECT_EQ(t_processor.yields, 4);
}

// Somebody computes: it is not asked again for some waits, and for more of them each time.
TEST(PatienceTest, DoesNotAskAgainWhoHasKeptTheCore) {
  Patience patience(0, means({}, microseconds(301)));
  for (int i = 0; i <= 32; ++i) looks_in_vain(patience);
  EXPECT_EQ(t_processor.yields, 1);
  for (int i = 0; i <= 64; ++i) looks_in_vain(patience);
  EXPECT_EQ(t_processor.yields, 2);
}

// What this rank itself does between two looks is nobody's keeping of its core.
TEST(PatienceTest, KeepsAskingWhateverItDoesMeanwhile) {
  Patience patience(0, means({}, microseconds(1)));
  looks_in_vain(patience, microseconds(310));
  EXPECT_EQ(t_processor.yields, 4);
  looks_in_vain(patience, microseconds(310));
  EXPECT_EQ(t_processor.yields, 8);
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
