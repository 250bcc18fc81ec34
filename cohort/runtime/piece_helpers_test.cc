// SPDX-License-Identifier: Apache-2.0
#include "cohort/runtime/piece_helpers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "cohort/runtime/float_mode.h"

namespace cohort::internal::runtime {
namespace {

TEST(PieceHelpers, DoEachPieceOnce) {
  PieceHelpers helpers;
  for (const int threads : {0, 1, 3}) {
    for (const int pieces : {0, 1, 2, 7, 1000, PieceHelpers::kMostPieces}) {
      std::vector<char> done(static_cast<std::size_t>(pieces));
      helpers.run(threads, pieces, [&](int i) { ++done[static_cast<std::size_t>(i)]; });
      EXPECT_EQ(done, std::vector<char>(done.size(), 1)) << threads << " " << pieces;
    }
  }
}

// A helper that comes late finds the next call's pieces, and takes none of a call that has ended.
TEST(PieceHelpers, WhoIsLateTakesNothingOfTheCallBefore) {
  PieceHelpers helpers;
  for (int call = 0; call < 20000; ++call) {
    std::vector<int> done(static_cast<std::size_t>(1 + call % 5));
    helpers.run(3, static_cast<int>(done.size()),
                [&](int i) { done[static_cast<std::size_t>(i)] += call + 1; });
    ASSERT_EQ(done, std::vector<int>(done.size(), call + 1));
  }
}

TEST(PieceHelpers, HelpWhoWaitsForThem) {
  PieceHelpers helpers;
  std::atomic<int> inside{0};
  helpers.run(1, 2, [&](int) {  // ends only if two threads are in it at once
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(PieceHelpers, ComputeInTheCallersFloatMode) {
  const auto flushes = [] {
    volatile float smallest = std::numeric_limits<float>::min();
    volatile float half = smallest * 0.5F;
    return half == 0;
  };
  PieceHelpers helpers;
  const auto seen = [&] {
    std::vector<char> modes(64);
    helpers.run(3, 64, [&](int i) { modes[static_cast<std::size_t>(i)] = flushes(); });
    return modes;
  };
  EXPECT_EQ(seen(), std::vector<char>(64, 0));
  {
    const FlushDenormals flush;
#if defined(__x86_64__)
    EXPECT_EQ(seen(), std::vector<char>(64, 1));
#endif
  }
  EXPECT_EQ(seen(), std::vector<char>(64, 0));
}

TEST(PieceHelpers, AChildOfForkWorksAlone) {
  auto helpers = std::make_unique<PieceHelpers>();
  helpers->run(2, 8, [](int) {});
  const pid_t child = fork();
  if (child == 0) {
    int done = 0;
    helpers->run(2, 8, [&](int) { ++done; });
    helpers.reset();
    _exit(done == 8 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cohort::internal::runtime
