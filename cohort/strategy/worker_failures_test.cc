// SPDX-License-Identifier: Apache-2.0
//
// What fails on one worker all workers throw, once, and then they go on together; workers at
// different things hear of it, and one that never comes is named.
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <latch>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using testing::error_text;
using testing::expect_error;
using testing::expect_words;
using testing::run_with_deadline;
using testing::Workers;

constexpr auto kLimit = std::chrono::seconds(60);

class WorkerFailures : public ::testing::TestWithParam<int> {
 protected:
  int local() const { return GetParam(); }
  void play(const std::function<void(const Strategy&)>& body, int workers = 2) const {
    run_with_deadline(kLimit, [&] { Workers(workers, local()).each(body); });
  }
  /// All workers together are as if nothing had been.
  void expect_usable(const Strategy& s) const {
    const auto sums = s.run([] { return get_replica_context().all_reduce("sum", ones({2})); });
    EXPECT_EQ(to_vector<float>(sums[0]), std::vector<float>(2, s.num_replicas_in_sync()));
    EXPECT_EQ(s.extended().sum_of_workers(1), s.extended().layout().workers());
  }
};

int worker_of(const Strategy& s) { return s.extended().layout().worker(); }

struct Mine : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_P(WorkerFailures, A9_ARunThatThrowsOnOneWorkerThrowsOnAll) {
  run_with_deadline(kLimit, [&] {
    const Workers workers(3, local());
    const auto texts = workers.run([&](const Strategy& s) {
      const std::string text = error_text<InvalidArgument>([&] {
        s.run([&] {
          const ReplicaContext ctx = get_replica_context();
          const bool last = ctx.replica_id_in_sync_group() == s.num_replicas_in_sync() - 1;
          if (last) throw InvalidArgument("[step] expected less");
          ctx.all_reduce("sum", ones({2}));
        });
      });
      expect_usable(s);
      return text;
    });
    expect_words(texts[0], {"[step] expected less", "(rank 2 of 3, in strategy.run, replica",
                            std::to_string(3 * local() - 1)});
    EXPECT_EQ(texts[1], texts[0]);
    EXPECT_EQ(texts[2], texts[0]);
  });
}

TEST_P(WorkerFailures, A9_AProgramsOwnExceptionIsThrownAsItIsWhereItComesFrom) {
  play([&](const Strategy& s) {
    const auto run = [&] {
      s.run([&] {
        if (worker_of(s) == 1) throw Mine("mine");
        get_replica_context().all_reduce("sum", ones({2}));
      });
    };
    if (worker_of(s) == 1) {
      EXPECT_THROW(run(), Mine);
    } else {
      expect_error(ErrorCode::kUnknown, {"mine", "rank 1 of 2"}, run);
    }
    expect_usable(s);
  });
}

TEST_P(WorkerFailures, A9_AWorkerWithoutMemoryEndsTheStepOnAll) {
  play([&](const Strategy& s) {
    const auto run = [&] {
      s.run([&] {
        if (worker_of(s) == 1) throw std::bad_alloc();
        get_replica_context().all_reduce("sum", ones({2}));
      });
    };
    if (worker_of(s) == 1) {
      EXPECT_THROW(run(), std::bad_alloc);
    } else {
      expect_error(ErrorCode::kUnknown, {"bad_alloc", "rank 1 of 2"}, run);
    }
    expect_usable(s);
  });
}

// The other worker's run has no meeting that could fail.
TEST_P(WorkerFailures, ALateFailureIsThrownByTheNextThingThatWorkersDo) {
  std::latch over(1);
  play([&](const Strategy& s) {
    if (worker_of(s) == 1) {
      over.wait();
      EXPECT_THROW(s.run([] { throw FailedPrecondition("[step] late"); }), FailedPrecondition);
    } else {
      s.run([] {});
      over.count_down();
      expect_error<FailedPrecondition>({"[step] late", "rank 1 of 2"}, [&] { s.barrier(); });
    }
    expect_usable(s);
  });
}

// What is over on the worker that fails next is over on both: else the failure may overtake it.
TEST_P(WorkerFailures, FailuresOneAfterTheOther) {
  std::barrier both(2);
  play([&](const Strategy& s) {
    for (int i = 0; i < 4; ++i) {
      both.arrive_and_wait();
      expect_error<DataLoss>({str_cat("[step] ", i)}, [&] {
        s.run([&] {
          if (worker_of(s) == i % 2) throw DataLoss(str_cat("[step] ", i));
          get_replica_context().all_reduce("sum", ones({2}));
        });
      });
      expect_usable(s);
    }
  });
}

TEST_P(WorkerFailures, AWrongCallOnOneWorkerEndsTheVerbOnAll) {
  play([&](const Strategy& s) {
    const auto rows =
        s.distribute_values_from_function([](const ValueContext&) { return ones({2}); });
    expect_error<InvalidArgument>({"[strategy.reduce]", "an axis"},
                                  [&] { s.reduce("sum", rows, worker_of(s) == 0 ? 5 : 0); });
    expect_usable(s);
  });
}

TEST_P(WorkerFailures, A8_DifferentVerbsAreNamed) {
  play([&](const Strategy& s) {
    const auto rows = s.distribute_values_from_function([](const ValueContext&) {
      return ones({2, 2});
    });
    const std::string verbs = error_text<FailedPrecondition>(
        [&] { worker_of(s) == 0 ? static_cast<void>(s.reduce("sum", rows)) : s.barrier(); });
    expect_words(verbs, {"the same operations in the same order", "all_gather", "barrier", "rank 0",
                         "rank 1"});
    expect_usable(s);
    const std::string shapes =
        error_text<FailedPrecondition>([&] { s.reduce("sum", ones({worker_of(s) + 1}), {}); });
    expect_words(shapes, {"float32[1] on worker 0", "float32[2] on worker 1"});
    expect_usable(s);
    const std::string dtypes = error_text<FailedPrecondition>(
        [&] { s.reduce("sum", ones({3}, worker_of(s) == 0 ? kFloat32 : kFloat64)); });
    expect_words(dtypes, {"float32[3] on worker 0", "float64[3] on worker 1"});
    expect_usable(s);
  });
}

TEST_P(WorkerFailures, A8_DifferentCollectivesInReplicasAreNamed) {
  play([&](const Strategy& s) {
    const bool first = worker_of(s) == 0;
    const auto unlike = [&](const auto& call) {
      return error_text<FailedPrecondition>([&] { s.run([&] { call(get_replica_context()); }); });
    };
    expect_words(
        unlike([&](const auto& ctx) { ctx.all_reduce(first ? "sum" : "mean", ones({2})); }),
        {"all_reduce of sum", "on worker 0", "all_reduce of mean", "on worker 1"});
    expect_usable(s);
    expect_words(unlike([&](const auto& ctx) { ctx.all_reduce("sum", ones({first ? 2 : 3})); }),
                 {"float32[2]", "float32[3]"});
    expect_usable(s);
    expect_words(unlike([&](const auto& ctx) {
                   first ? ctx.all_gather(ones({2}), 0) : ctx.all_reduce("sum", ones({2}));
                 }),
                 {"all_gather", "on worker 0", "all_reduce of sum", "on worker 1"});
    expect_usable(s);
  });
}

// Of equal bytes; the bits of one are no number of the other.
TEST_P(WorkerFailures, A8_NumbersOfOtherTypesInReplicasAreRefused) {
  play([&](const Strategy& s) {
    const bool first = worker_of(s) == 0;
    const std::string text = error_text<FailedPrecondition>([&] {
      s.run([&] {
        const ReplicaContext ctx = get_replica_context();
        if (first) {
          ctx.all_reduce("sum", int64_t{1});
        } else {
          ctx.all_reduce("sum", 1.0);
        }
      });
    });
    expect_words(text, {"int64", "on worker 0", "double", "on worker 1"});
    expect_usable(s);
  });
}

// With an end that workers agree on, and without.
TEST_P(WorkerFailures, A9_WhatOneWorkersDataThrowsAllThrow) {
  for (const bool ends : {true, false}) {
    play([&](const Strategy& s) {
      const DistributedDataset steps =
          s.distribute_datasets_from_function([&](const InputContext& context) {
            const bool fails = context.input_pipeline_id == 1;
            const Dataset numbers = Dataset::range(8).map([fails](const Tensor& x) {
              if (fails && x.item<int64_t>() == 5) throw DataLoss("[records] record 5 is damaged");
              return x;
            });
            return (ends ? numbers : numbers.repeat()).batch(1);
          });
      DistributedIterator it = steps.make_iterator();
      const std::string text = error_text<DataLoss>([&] {
        for (int step = 0; step < 8; ++step) {
          const auto batch = it.next();
          ASSERT_TRUE(batch);
          s.run([&] { get_replica_context().all_reduce("sum", ones({2})); });
        }
      });
      expect_words(text, {"record 5 is damaged"});
      if (worker_of(s) == 0) expect_words(text, {"rank 1"});
      expect_usable(s);
      EXPECT_TRUE(it.next());
    });
  }
}

TEST_P(WorkerFailures, G4_AWorkerThatNeverComesIsNamed) {
  run_with_deadline(kLimit, [&] {
    const Workers workers(3, local(), {.timeout = std::chrono::milliseconds(300)});
    workers.each([&](const Strategy& s) {
      if (worker_of(s) == 1) return;
      expect_error<DeadlineExceeded>({"rank 1"}, [&] { s.reduce("sum", scalar(1)); });
    });
  });
}

TEST_P(WorkerFailures, A8_ARunThatDivergesFromTheOthersIsAnErrorOnAll) {
  play([&](const Strategy& s) {
    const auto run = [&] {
      s.run([&] {
        if (worker_of(s) == 0) get_replica_context().all_reduce("sum", ones({2}));
      });
      s.barrier();
    };
    expect_error<FailedPrecondition>({"barrier", "rank 0", "rank 1"}, run);
    expect_usable(s);
  });
}

INSTANTIATE_TEST_SUITE_P(LocalReplicas, WorkerFailures, ::testing::Values(1, 2));

}  // namespace
}  // namespace cohort
