// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a job see when one of them fails, is late, differs or goes away.
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/sanitizers.h"
#include "cohort/base/strings.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/test_job.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::collectives {
namespace {

using testing::run_with_deadline;
constexpr std::chrono::seconds kLimit{60};

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}
template <class E>
bool is_a(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}

using CommunicatorFailure = ::testing::TestWithParam<Carrier>;
INSTANTIATE_TEST_SUITE_P(Carriers, CommunicatorFailure,
                         ::testing::Values(Carrier::kThreads, Carrier::kTcp, Carrier::kSharedMemory,
                                           Carrier::kTwoMachines, Carrier::kTls),
                         carrier_name);

struct Operation {
  const char* name;
  std::function<void(Communicator&)> call;
};

std::vector<Operation> operations() {
  return {
      {"barrier", [](Communicator& c) { c.barrier(); }},
      {"commit", [](Communicator& c) { c.commit(); }},
      {"broadcast",
       [](Communicator& c) {
         std::vector<int> x(5);
         c.broadcast(bytes_of(x), 0);
       }},
      {"all_reduce",
       [](Communicator& c) {
         std::vector<float> x(30000);
         c.all_reduce(bytes_of(x), kFloat32);
       }},
      {"reduce_scatter",
       [](Communicator& c) {
         std::vector<float> x(5);
         const std::vector<ConstBytes> pieces(static_cast<std::size_t>(c.size()), bytes_of(x));
         std::vector<float> out(5);
         c.reduce_scatter(pieces, bytes_of(out), kFloat32);
       }},
      {"all_gather",
       [](Communicator& c) {
         std::vector<std::vector<int>> x(static_cast<std::size_t>(c.size()), {1, 2});
         std::vector<Bytes> pieces;
         for (auto& one : x) pieces.push_back(bytes_of(one));
         c.all_gather(pieces);
       }},
      {"all_to_all",
       [](Communicator& c) {
         const auto ranks = static_cast<std::size_t>(c.size());
         std::vector<std::vector<int>> x(ranks, {1, 2});
         std::vector<int> y(2);
         const std::vector<ConstBytes> to(ranks, bytes_of(y));
         std::vector<Bytes> from;
         for (auto& one : x) from.push_back(bytes_of(one));
         c.all_to_all(to, from);
       }},
  };
}

TEST_P(CommunicatorFailure, AFailingRankWakesAllInEveryOperation) {
  for (const Operation& operation : operations()) {
    TestJob job(GetParam(), 3);
    job.before_each(1, [](const ExchangeKey&, const CallSignature&) {
      throw InvalidArgument("[model] rank 1's data are bad");
    });
    const auto errors = run_with_deadline(
        kLimit, [&] { return job.try_run([&](Communicator& c) { operation.call(c); }); });
    for (const auto& error : errors) {
      EXPECT_TRUE(is_a<InvalidArgument>(error)) << operation.name;
      EXPECT_EQ(text_of(error),
                str_cat("[model] rank 1's data are bad (rank 1 of 3, in ", operation.name, ")"));
    }
  }
}

TEST_P(CommunicatorFailure, AnAbortFromAnotherThreadWakesWhoWaits) {
  for (const Operation& operation : operations()) {
    TestJob job(GetParam(), 2);
    // Rank 1 never comes; whoever watches it gives up once rank 0 has begun.
    std::mutex mutex;
    std::condition_variable begun_changed;
    bool begun = false;
    job.before_each(0, [&](const ExchangeKey&, const CallSignature&) {
      const std::scoped_lock lock(mutex);
      begun = true;
      begun_changed.notify_all();
    });
    const auto errors = run_with_deadline(kLimit, [&] {
      return job.try_run([&](Communicator& c) {
        if (c.rank() == 0) return operation.call(c);
        std::unique_lock lock(mutex);
        begun_changed.wait(lock, [&] { return begun; });
        c.abort(std::make_exception_ptr(Unavailable("the worker is gone", "worker:1")), "liveness");
      });
    });
    EXPECT_TRUE(is_a<Unavailable>(errors[0])) << operation.name;
    EXPECT_EQ(text_of(errors[0]), "the worker is gone (rank 1 of 2, in liveness)");
    EXPECT_THROW(job[1].barrier(), Unavailable);  // who comes later fails, too
  }
}

TEST_P(CommunicatorFailure, DeadlinesNameWhoIsMissing) {
  for (const Operation& operation : operations()) {
    TestJob job(GetParam(), 3, {.timeout = std::chrono::milliseconds(20)});
    job.silence(2);
    const auto errors = run_with_deadline(
        kLimit, [&] { return job.try_run([&](Communicator& c) { operation.call(c); }); });
    // Which of the two, or rank 2, which hears nobody's acknowledgement, is first, is open.
    for (const auto& error : errors) {
      EXPECT_TRUE(is_a<DeadlineExceeded>(error)) << operation.name << ": " << text_of(error);
      EXPECT_NE(text_of(error).find(str_cat("at ", operation.name)), std::string::npos)
          << text_of(error);
    }
    EXPECT_EQ(text_of(errors[0]), text_of(errors[1]));
  }
}

TEST_P(CommunicatorFailure, ABarriersOwnDeadlineNamesTheMissingRank) {
  TestJob job(GetParam(), 3);
  std::latch started(1);
  const auto errors = run_with_deadline(kLimit, [&] {
    return job.try_run([&](Communicator& c) {
      if (c.rank() == 2) {
        auto pending = c.start_barrier({.tag = 9});
        started.count_down();
        pending.wait();
      } else if (c.rank() == 0) {
        started.wait();  // so that rank 1 alone is missing, however busy the machine is
        c.barrier({.tag = 9, .timeout = std::chrono::milliseconds(10)});
      }
    });
  });
  EXPECT_TRUE(is_a<DeadlineExceeded>(errors[0]));
  EXPECT_NE(text_of(errors[0]).find("barrier(0 bytes, tag 9)"), std::string::npos);
  EXPECT_NE(text_of(errors[0]).find("got none from rank 1"), std::string::npos);
}

TEST_P(CommunicatorFailure, DifferingSignaturesNameBothSides) {
  using Calls = std::vector<std::function<void(Communicator&)>>;
  const auto reduce = [](std::size_t count, DType dtype, ReduceOp op, uint64_t tag) {
    return [=](Communicator& c) {
      std::vector<std::byte> x(count * c10::elementSize(dtype));
      c.all_reduce(x, dtype, op, {.tag = tag});
    };
  };
  const auto sum = reduce(10, kFloat32, ReduceOp::kSum, 3);
  struct Case {
    Calls calls;
    std::vector<std::string> texts;
  };
  const std::vector<Case> cases = {
      {{sum, reduce(11, kFloat32, ReduceOp::kSum, 3)}, {"40 bytes, tag 3) on rank 0", "44 bytes"}},
      {{sum, reduce(10, kInt32, ReduceOp::kSum, 3)}, {"sum of float32", "sum of int32"}},
      {{sum, reduce(10, kFloat32, ReduceOp::kMax, 3)}, {"sum of float32", "max of float32"}},
      {{sum, reduce(10, kFloat32, ReduceOp::kSum, 4)}, {"tag 3) on rank 0", "tag 4) on rank 1"}},
      {{sum, [](Communicator& c) { c.barrier(); }}, {"all_reduce(", "barrier(0 bytes) on rank 1"}},
      {{sum, [](Communicator& c) { c.commit(); }}, {"all_reduce(", "commit(0 bytes) on rank 1"}},
      {{[](Communicator& c) {
         std::vector<int> x(2);
         c.broadcast(bytes_of(x), c.rank());
       }},
       {"broadcast(root 0, 8 bytes) on rank 0", "broadcast(root 1, 8 bytes) on rank 1"}},
      {{[](Communicator& c) {
         // As many bytes, cut in another way.
         std::vector<int> x(c.rank() == 0 ? 1 : 2), y(c.rank() == 0 ? 2 : 1);
         const std::vector<Bytes> pieces = {bytes_of(x), bytes_of(y)};
         c.all_gather(pieces);
       }},
       {"all_gather(12 bytes)", "agree on lengths"}},
  };
  for (const Case& each : cases) {
    TestJob job(GetParam(), 2);
    const auto errors = run_with_deadline(kLimit, [&] {
      return job.try_run([&](Communicator& c) {
        each.calls[static_cast<std::size_t>(c.rank()) % each.calls.size()](c);
      });
    });
    for (const auto& error : errors) {
      EXPECT_TRUE(is_a<FailedPrecondition>(error)) << text_of(error);
      for (const std::string& text : each.texts) {
        EXPECT_NE(text_of(error).find(text), std::string::npos) << text_of(error);
      }
    }
    EXPECT_EQ(text_of(errors[0]), text_of(errors[1]));
  }
}

TEST_P(CommunicatorFailure, AMessageOfAnotherLengthIsAnError) {
  TestJob job(GetParam(), 2);
  std::vector<int> received(3, -1);
  const auto errors = run_with_deadline(kLimit, [&] {
    return job.try_run([&](Communicator& c) {
      std::vector<int> four(4, 7);
      c.rank() == 0 ? c.send(bytes_of(four), 1) : c.receive(bytes_of(received), 0);
    });
  });
  EXPECT_NE(text_of(errors[1]).find("send(16 bytes) on rank 0 and send(12 bytes) on rank 1"),
            std::string::npos)
      << text_of(errors[1]);
  EXPECT_EQ(received, std::vector<int>(3, -1));
}

TEST_P(CommunicatorFailure, NothingOfAnOldGenerationArrives) {
  TestJob job(GetParam(), 2);
  const auto before = run_with_deadline(kLimit, [&] {
    return job.try_run([](Communicator& c) {
      if (c.rank() == 1) throw InvalidArgument("boom");
      std::vector<int> old(3, 111);
      auto sent = c.start_broadcast(bytes_of(old), 0);
      c.barrier();
    });
  });
  EXPECT_TRUE(is_a<InvalidArgument>(before[0]));
  EXPECT_THROW(job[0].barrier(), InvalidArgument);
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      c.renew();
      EXPECT_EQ(c.generation(), 1U);
      EXPECT_FALSE(c.failed());
      // The place of the old message in the order of operations.
      std::vector<int> fresh(3, c.rank() == 0 ? 222 : 0);
      c.broadcast(bytes_of(fresh), 0);
      EXPECT_EQ(fresh, std::vector<int>(3, 222));
    });
  });
}

TEST_P(CommunicatorFailure, AnOperationOfAnOldGenerationIsRefused) {
  TestJob job(GetParam(), 2);
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      std::vector<int> x(3);
      auto pending = c.start_broadcast(bytes_of(x), 0);
      c.renew();
      EXPECT_THROW(pending.wait(), FailedPrecondition);
      c.barrier();
    });
  });
}

TEST_P(CommunicatorFailure, RenewWaitsForAllAndNamesWhoIsMissing) {
  TestJob job(GetParam(), 2);
  testing::expect_error<DeadlineExceeded>(
      {"renew", "rank 1"}, [&] { job[0].renew({.timeout = std::chrono::milliseconds(10)}); });
  EXPECT_EQ(job[0].generation(), 0U);
}

TEST_P(CommunicatorFailure, DroppingAnOperationEndsTheGeneration) {
  TestJob job(GetParam(), 2);
  const auto errors = run_with_deadline(kLimit, [&] {
    return job.try_run([](Communicator& c) {
      std::vector<int> x(1000, c.rank());
      if (c.rank() == 0) {
        static_cast<void>(c.start_broadcast(bytes_of(x), 1));
      } else {
        c.barrier();
        c.barrier();
      }
      c.barrier();
    });
  });
  for (const auto& error : errors) EXPECT_TRUE(error);
}

TEST_P(CommunicatorFailure, ARankThatEndsIsMissedByWhoWaits) {
  for (const Operation& operation : operations()) {
    TestJob job(GetParam(), 3);
    job.leave(2);
    const auto errors = run_with_deadline(
        kLimit, [&] { return job.try_run([&](Communicator& c) { operation.call(c); }); });
    for (const int rank : {0, 1}) {
      const auto& error = errors[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(is_a<Unavailable>(error)) << operation.name << ": " << text_of(error);
      EXPECT_NE(text_of(error).find("rank 2, which has ended"), std::string::npos);
    }
  }
}

TEST_P(CommunicatorFailure, DestroyingWithOperationsUnderWayWakesTheOthers) {
  TestJob job(GetParam(), 2);
  std::vector<int> x(1000, 1);
  Communicator::Pending left;
  std::exception_ptr error;
  run_with_deadline(kLimit, [&] {
    // Rank 1 waits for rank 0's second operation, which never comes.
    std::promise<void> waits;
    job.before_each(1, [&](const ExchangeKey& key, const CallSignature&) {
      if (key.sequence == 1) waits.set_value();
    });
    std::jthread other([&] {
      std::vector<float> y(3);
      std::vector<int> z(1000);
      try {
        job[1].broadcast(bytes_of(z), 0);
        job[1].all_reduce(bytes_of(y), kFloat32);
      } catch (...) {
        error = std::current_exception();
      }
    });
    left = job[0].start_broadcast(bytes_of(x), 0);
    waits.get_future().wait();
    job.leave(0);
  });
  EXPECT_TRUE(is_a<Cancelled>(error)) << text_of(error);
  EXPECT_THROW(left.wait(), FailedPrecondition);
}

// Rank 2 fails right at the commit, before or behind the others: all have passed, or none.
TEST_P(CommunicatorFailure, ACommitIsPassedByAllOrNone) {
  constexpr int kRounds = COHORT_UNDER_SANITIZER != 0 ? 40 : 200;
  for (int round = 0; round < kRounds; ++round) {
    TestJob job(GetParam(), 3);
    std::array<bool, 3> passed = {};
    run_with_deadline(kLimit, [&] {
      job.try_run([&](Communicator& c) {
        const auto rank = static_cast<std::size_t>(c.rank());
        if (rank == 2) {
          // Somebody who watches this rank, at any moment.
          std::jthread watch(
              [&] { c.abort(std::make_exception_ptr(Unavailable("gone", "rank 2")), "liveness"); });
          c.commit();
        } else {
          c.commit();
        }
        passed[rank] = true;
      });
    });
    EXPECT_EQ(passed[0], passed[1]);
    EXPECT_EQ(passed[0], passed[2]);
  }
}

TEST_P(CommunicatorFailure, ASlowRankIsWaitedFor) {
  TestJob job(GetParam(), 3);
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  for (const int rank : {0, 2}) {
    job.before_each(rank, [&](const ExchangeKey&, const CallSignature&) {
      const std::scoped_lock lock(mutex);
      ++begun;
      changed.notify_all();
    });
  }
  // Rank 1 begins only when the two others have.
  job.before_each(1, [&](const ExchangeKey&, const CallSignature&) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return begun >= 2; });
  });
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      std::vector<int> x(4, c.rank());
      c.all_reduce(bytes_of(x), kInt32);
      EXPECT_EQ(x, std::vector<int>(4, 3));
    });
  });
}

// Whatever carries the messages: thrown once everywhere, and the turn after begins anew.
TEST_P(CommunicatorFailure, TurnsThrowAFailureOnceOnAllRanks) {
  TestJob job(GetParam(), 3);
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      const auto turn = [&](bool fails) {
        c.take_turn("[work] ", [&] {
          c.take_turn("inside", [&] {
            if (fails && c.rank() == 1) throw DataLoss("lost");
          });
          c.barrier();
        });
      };
      testing::expect_error<DataLoss>({"lost (rank 1 of 3, in work)"}, [&] { turn(true); });
      turn(false);
      EXPECT_EQ(c.generation(), 1U);
    });
  });
}

// A loop of turns unwinds, while another thread of each rank goes on.
TEST_P(CommunicatorFailure, AGuardLeavesTheGenerationAloneThatAnotherThreadHasBegun) {
  TestJob job(GetParam(), 2);
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      const auto loop = [&] {
        try {
          c.take_turn("step", [&] {
            if (c.rank() == 1) throw DataLoss("lost");
            c.barrier();
          });
        } catch (...) {
          std::jthread([&] { c.take_turn("another thread's", [&] { c.barrier(); }); }).join();
          throw;
        }
      };
      testing::expect_error<DataLoss>({"lost (rank 1 of 2, in step)"},
                                      [&] { c.guard("loop", loop); });
      EXPECT_EQ(c.generation(), 1U);
      EXPECT_NO_THROW(c.take_turn("next", [&] { c.barrier(); }));
      EXPECT_EQ(c.generation(), 1U);
    });
  });
}

// Which has no end that a clock could name.
TEST_P(CommunicatorFailure, TheLongestTimeoutIsNoneInThePast) {
  TestJob job(GetParam(), 2, {.timeout = std::chrono::milliseconds::max()});
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      for (int i = 0; i < 2; ++i) {
        std::vector<int> numbers(30'000, 1);
        c.all_reduce(bytes_of(numbers), kInt32);
        EXPECT_EQ(numbers.back(), 2);
        c.commit();
        c.renew();
      }
    });
  });
}

TEST_P(CommunicatorFailure, TurnsOfSeveralThreadsDoNotMix) {
  TestJob job(GetParam(), 2);
  run_with_deadline(kLimit, [&] {
    job.run([](Communicator& c) {
      const auto work = [&] {
        for (int i = 0; i < 50; ++i) {
          c.take_turn("work", [&] {
            for (const int bytes : {1, 2, 3}) {
              std::vector<uint8_t> x(static_cast<std::size_t>(bytes), 1);
              c.all_reduce(bytes_of(x), kUint8);
              EXPECT_EQ(x, std::vector<uint8_t>(x.size(), 2));
            }
          });
        }
      };
      const std::jthread other(work);
      work();
    });
  });
}

}  // namespace
}  // namespace cohort::internal::collectives
