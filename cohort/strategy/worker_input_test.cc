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

Tensor ones_of_a_batch() { return ones({3}); }

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

// Each would go on with other batches than the others, or wait for what they do not send.
TEST(WorkerInput, UnlikeDataIsAnErrorThatNamesBoth) {
  run_with_deadline(kLimit, [] {
    Workers(2, 1).each([](const Strategy& s) {
      const int me = worker_of(s);
      const auto expect_unlike = [&](const std::string& first, const std::string& second,
                                     const Dataset& data) {
        expect_error<FailedPrecondition>(
            {"[strategy.distribute_dataset] expected the same data", "AutoShardPolicy::kOff",
             first + " on worker 0", second + " on worker 1"},
            [&] { s.distribute_dataset(data); });
      };
      expect_unlike("of 4 rows, 5 of them", "of 4 rows, 6 of them",
                    Dataset::range(20 + 4 * me).batch(4));
      expect_unlike("of 4 rows, 5 of them", "of 5 rows, 4 of them",
                    Dataset::range(20).batch(4 + me));
      const Dataset numbers = Dataset::range(20).batch(4);
      expect_unlike("of 4 rows, without end", "of 4 rows, 5 of them",
                    me == 0 ? numbers.repeat() : numbers);
      expect_unlike(
          "batches of its own (AutoShardPolicy kOff)", "of 4 rows, 5 of them",
          me == 0 ? numbers.with_options({.auto_shard_policy = AutoShardPolicy::kOff}) : numbers);
      EXPECT_EQ(s.distribute_dataset(numbers).cardinality(), 5);
      // Who has to read it to know how many there are may have as many.
      const Dataset unknown = numbers.filter([](const Tensor&) { return true; });
      EXPECT_EQ(unknown.cardinality(), kUnknownCardinality);
      EXPECT_EQ(s.distribute_dataset(me == 0 ? unknown : numbers).num_replicas(), 1);
    });
  });
}

// The worker whose data has no end takes part in the question whether anybody has more.
TEST(WorkerInput, DataOfOneWorkerMayEndAndThatOfAnotherNot) {
  run_with_deadline(kLimit, [] {
    const auto sums = Workers(2, 1).run([](const Strategy& s) {
      const auto data = s.distribute_datasets_from_function([](const InputContext& context) {
        const Dataset ones = Dataset::from_tensors(ones_of_a_batch()).repeat(2);
        return context.input_pipeline_id == 0 ? ones.repeat() : ones;
      });
      DistributedIterator steps = data.make_iterator();
      std::vector<float> all;
      for (int step = 0; step < 4; ++step) {
        const auto rows = s.run([](const Tensor& x) { return x.sum(); }, steps.get_next());
        all.push_back(s.reduce(ReduceOp::kSum, rows).item<float>());
      }
      return all;
    });
    EXPECT_EQ(sums[0], (std::vector<float>{6, 6, 3, 3}));
    EXPECT_EQ(sums[1], sums[0]);
  });
}

}  // namespace
}  // namespace cohort
