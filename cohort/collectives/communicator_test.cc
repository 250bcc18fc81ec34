// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/sanitizers.h"
#include "cohort/collectives/test_job.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::collectives {
namespace {

class CommunicatorSizes : public ::testing::TestWithParam<std::tuple<Carrier, int>> {
 protected:
  TestJob job_{std::get<0>(GetParam()), std::get<1>(GetParam())};
  int size() const { return job_.size(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorSizes,
                         ::testing::Combine(::testing::Values(Carrier::kThreads, Carrier::kTcp,
                                                              Carrier::kSharedMemory,
                                                              Carrier::kTwoMachines, Carrier::kTls),
                                            ::testing::Values(1, 2, 3, 5, 8)));

// Another one for each rank, place and dtype; sums in another order have other bits.
Tensor numbers_of(int rank, int64_t count, DType dtype) {
  const Tensor x = (arange(count, kFloat64) * 0.37 + 1.7 * rank).sin() * 100;
  return x.to(dtype);
}
Bytes bytes_in(const Tensor& t) {
  return {static_cast<std::byte*>(t.data_ptr()), static_cast<std::size_t>(t.nbytes())};
}

TEST_P(CommunicatorSizes, BroadcastsEachRanksBytes) {
  job_.run([&](Communicator& c) {
    for (int root = 0; root < size(); ++root) {
      std::vector<int> values(5, c.rank());
      c.broadcast(bytes_of(values), root);
      EXPECT_EQ(values, std::vector<int>(5, root));
    }
  });
}

// Each rank starts them in another order.
TEST_P(CommunicatorSizes, ReservedPlacesMayBeTakenInAnyOrder) {
  const bool can = std::get<0>(GetParam()) != Carrier::kSharedMemory || size() == 1;
  job_.run([&](Communicator& c) {
    if (!can) {
      EXPECT_THROW(c.reserve(3), FailedPrecondition);
      return;
    }
    c.barrier();
    const uint64_t first = c.reserve(3);
    std::array<std::vector<int>, 4> ranks;
    std::array<Communicator::Pending, 4> pending;
    const auto start = [&](std::size_t i, std::optional<uint64_t> place) {
      ranks[i].assign(static_cast<std::size_t>(size()), -1);
      ranks[i][static_cast<std::size_t>(c.rank())] = 10 * c.rank() + static_cast<int>(i);
      std::vector<Bytes> pieces;
      for (int& rank : ranks[i]) pieces.push_back(std::as_writable_bytes(std::span(&rank, 1)));
      pending[i] = c.start_all_gather(pieces, {.tag = i, .place = place});
    };
    const auto shift = static_cast<std::size_t>(c.rank());
    start(3, {});  // the next one behind them
    for (std::size_t i = 0; i < 3; ++i) start((i + shift) % 3, first + (i + shift) % 3);
    for (Communicator::Pending& each : pending) each.wait();
    for (std::size_t i = 0; i < 4; ++i) {
      for (int r = 0; r < size(); ++r) {
        EXPECT_EQ(ranks[i][static_cast<std::size_t>(r)], 10 * r + static_cast<int>(i));
      }
    }
    c.barrier();
  });
}

// Where ranks share memory nobody can say so early, and nobody has to.
TEST_P(CommunicatorSizes, SaysWhatHasComeWithoutWaiting) {
  const bool can_say = std::get<0>(GetParam()) != Carrier::kSharedMemory;
  job_.run([&](Communicator& c) {
    std::vector<int> ranks(static_cast<std::size_t>(size()), -1);
    ranks[static_cast<std::size_t>(c.rank())] = c.rank();
    std::vector<Bytes> pieces;
    for (int& rank : ranks) pieces.push_back(std::as_writable_bytes(std::span(&rank, 1)));
    std::vector<int> go = {1};
    if (c.rank() != 0) c.receive(bytes_of(go), 0);
    Communicator::Pending pending = c.start_all_gather(pieces);
    if (c.rank() == 0) {
      EXPECT_EQ(pending.has_come(), size() == 1) << "the others have not begun";
      for (int peer = 1; peer < size(); ++peer) c.send(bytes_of(go), peer);
    }
    while (can_say && !pending.has_come()) c.go_on();
    pending.wait();
    EXPECT_TRUE(pending.has_come());
    for (int r = 0; r < size(); ++r) EXPECT_EQ(ranks[static_cast<std::size_t>(r)], r);
  });
}

TEST_P(CommunicatorSizes, AllReduceAddsEveryDtypeInRankOrder) {
  // Nothing, less than one a rank, odd, and so much that every rank adds up a part.
  for (const int64_t count : {0, 1, 3, 1001, 40007}) {
    for (const DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16, kInt64, kInt32, DType::Char,
                              DType::ComplexFloat}) {
      std::vector<Tensor> values;
      for (int r = 0; r < size(); ++r) values.push_back(numbers_of(r, count, dtype));
      const Tensor expected = reductions::reduce_in_order(ReduceOp::kSum, values).clone();
      std::vector<Tensor> results(values.size());
      job_.run([&](Communicator& c) {
        const Tensor mine = values[static_cast<std::size_t>(c.rank())].clone();
        c.all_reduce(bytes_in(mine), dtype);
        results[static_cast<std::size_t>(c.rank())] = mine;
      });
      for (const Tensor& result : results) {
        ASSERT_TRUE(result.equal(expected)) << count << " of " << dtype_name(dtype);
      }
    }
  }
}

TEST_P(CommunicatorSizes, AllReduceKnowsEveryOperation) {
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    std::vector<Tensor> values;
    for (int r = 0; r < size(); ++r) values.push_back(numbers_of(r, 7777, kFloat32));
    const Tensor expected = reductions::reduce_in_order(op, values).clone();
    job_.run([&](Communicator& c) {
      const Tensor mine = values[static_cast<std::size_t>(c.rank())].clone();
      c.all_reduce(bytes_in(mine), kFloat32, op);
      EXPECT_TRUE(mine.equal(expected)) << reduce_op_name(op);
    });
  }
}

TEST_P(CommunicatorSizes, ReduceScatterGivesEachRankItsPieceOfTheSum) {
  job_.run([&](Communicator& c) {
    // Pieces of different lengths, the first one empty.
    std::vector<std::vector<double>> rows;
    std::vector<ConstBytes> pieces;
    for (int r = 0; r < size(); ++r) {
      rows.emplace_back(static_cast<std::size_t>(3 * r), c.rank() + 10.0 * r);
    }
    for (auto& row : rows) pieces.push_back(bytes_of(row));
    std::vector<double> out(static_cast<std::size_t>(3 * c.rank()));
    c.reduce_scatter(pieces, bytes_of(out), kFloat64);
    const double ranks = size() * (size() - 1) / 2.0;
    EXPECT_EQ(out, std::vector<double>(out.size(), ranks + 10.0 * c.rank() * size()));
    // In place.
    const auto here = static_cast<std::size_t>(c.rank());
    c.reduce_scatter(pieces, bytes_of(rows[here]), kFloat64);
    EXPECT_EQ(rows[here], out);
  });
}

TEST_P(CommunicatorSizes, AllGatherJoinsPiecesOfAnyLength) {
  job_.run([&](Communicator& c) {
    std::vector<std::vector<int>> rows;
    std::vector<Bytes> pieces;
    for (int r = 0; r < size(); ++r) {
      rows.emplace_back(static_cast<std::size_t>(r * 7 % 5), r == c.rank() ? r : -1);
    }
    for (auto& row : rows) pieces.push_back(bytes_of(row));
    c.all_gather(pieces);
    for (int r = 0; r < size(); ++r) {
      const auto& row = rows[static_cast<std::size_t>(r)];
      EXPECT_EQ(row, std::vector<int>(row.size(), r));
    }
  });
}

TEST_P(CommunicatorSizes, AllToAllSendsEachRankItsOwn) {
  job_.run([&](Communicator& c) {
    const auto ranks = static_cast<std::size_t>(size());
    std::vector<std::vector<int>> out(ranks), in(ranks);
    std::vector<ConstBytes> to;
    std::vector<Bytes> from;
    for (int r = 0; r < size(); ++r) {
      // From s to r go s + 2r numbers.
      out[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(c.rank() + 2 * r),
                                              100 * c.rank() + r);
      in[static_cast<std::size_t>(r)].resize(static_cast<std::size_t>(r + 2 * c.rank()));
    }
    for (auto& one : out) to.push_back(bytes_of(one));
    for (auto& one : in) from.push_back(bytes_of(one));
    c.all_to_all(to, from);
    for (int r = 0; r < size(); ++r) {
      const auto& got = in[static_cast<std::size_t>(r)];
      EXPECT_EQ(got, std::vector<int>(got.size(), 100 * r + c.rank()));
    }
  });
}

// Whether they move or are read in place.
TEST_P(CommunicatorSizes, LentPiecesCanBeReadUntilTheRanksAgree) {
  for (const std::size_t floats : {std::size_t{3}, std::size_t{5000}, std::size_t{400'000}}) {
    // The large ones take most of the test's time.
    const int rounds = floats < 10'000 ? 20 : COHORT_UNDER_SANITIZER != 0 ? 2 : 4;
    job_.run([&](Communicator& c) {
      const auto ranks = static_cast<std::size_t>(size());
      const std::size_t bytes = floats * sizeof(float);
      const auto lent = c.allocate(bytes);
      const auto mine = std::span(reinterpret_cast<float*>(lent.get()), floats);
      std::vector<std::vector<float>> in(ranks, std::vector<float>(floats));
      std::vector<ConstBytes> to(ranks, bytes_of(mine)), seen(ranks);
      std::vector<Bytes> from;
      for (auto& one : in) from.push_back(bytes_of(one));
      for (int round = 0; round < rounds; ++round) {
        std::fill(mine.begin(), mine.end(), static_cast<float>(100 * round + c.rank()));
        c.start_lend(to, from, seen).wait();
        for (std::size_t r = 0; r < ranks; ++r) {
          const auto* const there = reinterpret_cast<const float*>(seen[r].data());
          EXPECT_EQ(there[0], static_cast<float>(100 * round) + static_cast<float>(r));
          EXPECT_EQ(there[floats - 1], there[0]);
        }
        c.commit();
        c.start_lend_to_all(bytes_of(mine), from, seen).wait();
        EXPECT_EQ(reinterpret_cast<const float*>(seen.back().data())[floats - 1],
                  static_cast<float>(100 * round + size() - 1));
        c.commit();
      }
    });
  }
}

TEST_P(CommunicatorSizes, LargePiecesArrive) {
  job_.run([&](Communicator& c) {
    std::vector<std::vector<int>> rows;
    std::vector<Bytes> pieces;
    for (int r = 0; r < size(); ++r) {
      // Some of them larger than what can lie ready between two processes.
      rows.emplace_back(static_cast<std::size_t>(150'000 * r + 6000), r == c.rank() ? r + 7 : -1);
    }
    for (auto& row : rows) pieces.push_back(bytes_of(row));
    c.all_gather(pieces);
    for (int r = 0; r < size(); ++r) {
      const auto& row = rows[static_cast<std::size_t>(r)];
      EXPECT_EQ(row, std::vector<int>(row.size(), r + 7)) << "of rank " << r;
    }
    const auto sums = c.allocate(3'000'000);
    const auto numbers = std::span(reinterpret_cast<float*>(sums.get()), 750'000);
    std::fill(numbers.begin(), numbers.end(), static_cast<float>(c.rank()));
    c.all_reduce(bytes_of(numbers), kFloat32);
    EXPECT_EQ(2 * numbers.front(), static_cast<float>(size() * (size() - 1)));
    EXPECT_EQ(numbers.back(), numbers.front());
  });
}

// What goes to the ranks may begin at one place of a buffer, with other lengths or none.
TEST_P(CommunicatorSizes, PiecesOfOneBufferMayBeginTogether) {
  job_.run([&](Communicator& c) {
    // Rank r sends rank p the first `length(p)` bytes of its buffer.
    const auto size_to = [](std::size_t unit, int p) {
      return p == 0 ? 0 : unit * static_cast<std::size_t>(p);
    };
    for (const std::size_t unit : {100UL, 9000UL, 40'000UL, 9000UL}) {
      for (const bool last_is_empty : {false, true}) {
        const auto length = [&](int p) {
          return size_to(unit, last_is_empty ? size() - 1 - p : p);
        };
        const std::vector<char> mine(unit * static_cast<std::size_t>(size()),
                                     static_cast<char>('a' + c.rank()));
        std::vector<std::vector<char>> got;
        for (int r = 0; r < size(); ++r) got.emplace_back(length(c.rank()), '?');
        std::vector<ConstBytes> to;
        std::vector<Bytes> from;
        for (int r = 0; r < size(); ++r) {
          to.push_back(std::as_bytes(std::span(mine).first(length(r))));
          from.push_back(bytes_of(got[static_cast<std::size_t>(r)]));
        }
        c.all_to_all(to, from);
        for (int r = 0; r < size(); ++r) {
          if (r == c.rank()) continue;
          EXPECT_EQ(got[static_cast<std::size_t>(r)],
                    std::vector<char>(length(c.rank()), static_cast<char>('a' + r)))
              << unit << " from " << r;
        }
      }
    }
  });
}

// More than have a place in shared memory at a time.
TEST_P(CommunicatorSizes, ManyStartedOperationsFinishInAnyOrder) {
  job_.run([&](Communicator& c) {
    std::vector<std::vector<float>> sums(40, std::vector<float>(9000, 1.0F));
    std::vector<Communicator::Pending> pending;
    for (auto& each : sums) pending.push_back(c.start_all_reduce(bytes_of(each), kFloat32));
    if (c.rank() % 2 == 0) pending.back().wait();
    for (auto& each : pending) each.wait();
    for (auto& each : sums) EXPECT_EQ(each.back(), static_cast<float>(size()));
    std::vector<std::vector<float>> few(100, std::vector<float>(10, 1.0F));
    pending.clear();
    for (auto& each : few) pending.push_back(c.start_all_reduce(bytes_of(each), kFloat32));
    c.commit();
    for (auto& each : few) EXPECT_EQ(each.back(), static_cast<float>(size()));
    for (auto& each : pending) each.wait();
  });
}

TEST_P(CommunicatorSizes, SendsAroundARing) {
  if (size() == 1) return;  // a rank sends itself nothing
  job_.run([&](Communicator& c) {
    std::vector<int> out(3, c.rank()), more(4, -c.rank()), in(3), in_more(4);
    const int next = (c.rank() + 1) % size();
    const int before = (c.rank() + size() - 1) % size();
    auto first = c.start_send(bytes_of(out), next, {.tag = 5});
    auto second = c.start_send(bytes_of(more), next);
    c.receive(bytes_of(in), before, {.tag = 5});
    c.receive(bytes_of(in_more), before);
    second.wait();  // in any order
    first.wait();
    EXPECT_EQ(in, std::vector<int>(3, before));
    EXPECT_EQ(in_more, std::vector<int>(4, -before));
  });
}

// More than connections and rings hold: somebody has to move it.
TEST_P(CommunicatorSizes, GoingOnMovesWhatIsUnderWay) {
  if (size() == 1) return;
  std::atomic<bool> is_there{false};
  job_.run([&](Communicator& c) {
    constexpr std::size_t kSize = std::size_t{COHORT_UNDER_SANITIZER != 0 ? 2 : 8} << 20;
    std::vector<int> numbers(kSize, c.rank() + 1);
    if (c.rank() == 0) {
      auto sent = c.start_send(bytes_of(numbers), 1);
      while (!is_there && !c.failed()) {
        c.go_on();
        std::this_thread::yield();
      }
      sent.wait();
    } else if (c.rank() == 1) {
      c.receive(bytes_of(numbers), 0, {.timeout = std::chrono::minutes(1)});
      is_there = true;
      EXPECT_EQ(numbers, std::vector<int>(numbers.size(), 1));
    }
    c.barrier();
  });
}

TEST_P(CommunicatorSizes, StartedOperationsOverlap) {
  job_.run([&](Communicator& c) {
    std::vector<double> sums(40000, c.rank() + 1.0);
    std::vector<float> small(3, 1.0F);
    std::vector<int> root(10, c.rank());
    auto big = c.start_all_reduce(bytes_of(sums), kFloat64);
    auto small_one = c.start_all_reduce(bytes_of(small), kFloat32);
    auto third = c.start_broadcast(bytes_of(root), size() - 1);
    // Each rank waits in an order of its own: a wait finishes what was started before.
    if (c.rank() % 2 == 0) {
      third.wait();
      big.wait();
      small_one.wait();
    } else {
      small_one.wait();
      c.barrier();
      big.wait();
      third.wait();
    }
    if (c.rank() % 2 == 0) c.barrier();
    EXPECT_EQ(sums, std::vector<double>(sums.size(), size() * (size() + 1) / 2.0));
    EXPECT_EQ(small, std::vector<float>(3, static_cast<float>(size())));
    EXPECT_EQ(root, std::vector<int>(10, size() - 1));
  });
}

TEST_P(CommunicatorSizes, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<int> came{0};
  job_.run([&](Communicator& c) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      round % 2 == 0 ? c.barrier() : c.commit();
      EXPECT_GE(came.load(), round * size());
    }
  });
}

TEST(Communicator, OneRankIsTheIdentity) {
  Communicator alone;
  EXPECT_EQ(alone.size(), 1);
  std::vector<float> x = {1, 2}, y(2);
  alone.all_reduce(bytes_of(x), kFloat32, ReduceOp::kMean);
  alone.broadcast(bytes_of(x), 0);
  const std::vector<ConstBytes> pieces = {bytes_of(x)};
  alone.reduce_scatter(pieces, bytes_of(y), kFloat32);
  EXPECT_EQ(y, (std::vector<float>{1, 2}));
  alone.barrier();
  alone.commit();
  alone.renew();
  EXPECT_EQ(alone.generation(), 1U);
  EXPECT_FALSE(alone.failed());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(alone.allocate(100).get()) % 64, 0U);
}

// Who moves bytes for a run that computes stays away from what the run does meanwhile.
TEST(Communicator, WhoIsBesideARunIsNotBesideATurnWithinIt) {
  TestJob job(Carrier::kThreads, 2);
  job.run([](Communicator& c) {
    const auto is_called = [&] {
      bool called = false;
      bool got = false;
      std::jthread([&] { got = c.beside_turn([&] { called = true; }); }).join();
      EXPECT_EQ(called, got);
      return called;
    };
    runtime::ReplicaGroup group({.replicas = 1});
    const auto body = [&] {
      EXPECT_TRUE(is_called());
      c.take_turn("within", [&] {
        EXPECT_FALSE(is_called());
        c.take_turn("within that", [&] { c.barrier(); });
        EXPECT_FALSE(is_called());
      });
      EXPECT_TRUE(is_called());
    };
    EXPECT_FALSE(is_called());
    c.take_turn("step", body, &group);
    c.take_turn("no run", [&] { EXPECT_FALSE(is_called()); });
  });
}

TEST(Communicator, RefusesWhatNoRankCanDo) {
  Communicator alone;
  std::vector<std::byte> three(3);
  using testing::expect_error;
  expect_error<InvalidArgument>({"[communicator.all_reduce]", "float32", "3 bytes"},
                                [&] { alone.all_reduce(three, kFloat32); });
  expect_error<InvalidArgument>({"mean", "int8"},
                                [&] { alone.all_reduce(three, DType::Char, ReduceOp::kMean); });
  expect_error<InvalidArgument>({"[communicator.broadcast]", "got 1"},
                                [&] { alone.broadcast(three, 1); });
  expect_error<InvalidArgument>({"[communicator.send]", "another rank"},
                                [&] { alone.send(three, 0); });
  expect_error<InvalidArgument>({"1 pieces", "got 0"}, [&] { alone.all_gather({}); });
}

}  // namespace
}  // namespace cohort::internal::collectives
