// SPDX-License-Identifier: Apache-2.0
//
// Workers that take their parts of the same batches take them of the same batch, whatever fails,
// and are told where their data is in unlike orders.
#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <vector>

#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::expect_error;
using testing::run_with_deadline;
using testing::Workers;

constexpr auto kLimit = std::chrono::seconds(60);
constexpr int kSteps = 6;
constexpr int kFails = 2;

int worker_of(const Strategy& s) { return s.extended().layout().worker(); }

// When worker 1 fails in a step that worker 0 has ended: before that one reads the next step, which
// then throws the failure, or behind it.
enum class Fails { kBeforeTheNextIsRead, kBehindIt };

struct Meeting {
  std::latch has_read{1};
  std::latch has_failed{1};
};

// The first numbers of the batches of the steps that worker `s` has made, as all workers see them.
std::vector<std::vector<float>> steps_of(const Strategy& s, Fails fails, Meeting& meeting) {
  const auto data = s.distribute_dataset(Dataset::range(2 * kSteps).batch(2));
  DistributedIterator steps = data.make_iterator();
  std::vector<std::vector<float>> made;
  bool is_first = true;
  for (int at = 0;; ++at) {
    try {
      const auto step = steps.next();
      if (!step) return made;
      if (worker_of(s) == 0 && at == kFails + 1 && is_first) meeting.has_read.count_down();
      Tensor all;
      s.run(
          [&](const Element& part) {
            all = get_replica_context().all_gather(part.as<Tensor>().to(kFloat32), 0);
            if (worker_of(s) == 0 || at != kFails || !is_first) return;
            if (fails == Fails::kBehindIt) meeting.has_read.wait();
            throw DataLoss("[step] fails");
          },
          *step);
      made.push_back(to_vector<float>(all));
      const bool waits = worker_of(s) == 0 && at == kFails && fails == Fails::kBeforeTheNextIsRead;
      if (waits && is_first) meeting.has_failed.wait();
    } catch (const DataLoss&) {
      is_first = false;
      if (worker_of(s) == 1) meeting.has_failed.count_down();
    }
  }
}

TEST(WorkerInput, AFailedStepIsLostToAllWorkersAlike) {
  for (const Fails fails : {Fails::kBeforeTheNextIsRead, Fails::kBehindIt}) {
    run_with_deadline(kLimit, [&] {
      Meeting meeting;
      const auto made =
          Workers(2, 1).run([&](const Strategy& s) { return steps_of(s, fails, meeting); });
      // Worker 0 may have made the step that failed behind its end.
      for (const auto& steps : made) {
        for (const auto& step : steps) {
          ASSERT_EQ(step.size(), 2);
          EXPECT_EQ(step[1], step[0] + 1) << "parts of two batches";
        }
        EXPECT_EQ(steps.back(), (std::vector<float>{2 * kSteps - 2, 2 * kSteps - 1}));
      }
      // Or it was told of the failure ahead of its end.
      const std::size_t more = made[0].size() - made[1].size();
      EXPECT_TRUE(more == 0 || more == 1) << more;
    });
  }
}

TEST(WorkerInput, UnlikeOrdersAreAnErrorThatNamesTheSeeds) {
  run_with_deadline(kLimit, [] {
    Workers(2, 1).each([](const Strategy& s) {
      const auto shuffled = [&](int64_t seed) {
        return s.distribute_dataset(
            Dataset::range(20).shuffle(20, {.seed = static_cast<uint64_t>(seed)}).batch(4));
      };
      expect_error<FailedPrecondition>(
          {"[strategy.distribute_dataset] expected the same order of the data", "set_seed",
           "shuffle seed 1 on worker 0", "shuffle seed 2 on worker 1"},
          [&] { shuffled(1 + worker_of(s)); });
      EXPECT_EQ(shuffled(7).cardinality(), 5);
    });
  });
}

}  // namespace
}  // namespace cohort
