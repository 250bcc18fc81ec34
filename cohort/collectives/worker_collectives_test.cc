// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/worker_collectives.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/collectives/communicator.h"
#include "cohort/collectives/transports/threads/thread_job.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/testing/expect_error.h"

namespace cohort::internal::collectives {
namespace {

using testing::expect_error;
constexpr const char* kName = "[test] ";

Tensor value_of(int replica, DType dtype = kFloat32) {
  return ((arange(5000, kFloat64) * 0.37 + replica).sin() * 10).reshape({50, 100}).to(dtype);
}

TEST(WorkerCollectives, WorkersOfOneReplicaReduceWithTheBitsOfOneProcess) {
  for (const int workers : {1, 2, 3}) {
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
        std::vector<Tensor> all;
        for (int r = 0; r < workers; ++r) all.push_back(value_of(r, dtype));
        const Tensor expected = reductions::reduce_in_order(op, all);
        ThreadJob job(workers);
        job.run([&](Communicator& c) {
          const Tensor mine = value_of(c.rank(), dtype);
          const Tensor got = reduce_across(c, kName, op, std::span(&mine, 1));
          EXPECT_TRUE(got.equal(expected)) << reduce_op_name(op) << dtype_name(dtype);
          EXPECT_TRUE(mine.equal(value_of(c.rank(), dtype)));  // what came in stays
        });
      }
    }
  }
}

TEST(WorkerCollectives, AMeanCountsEveryReplica) {
  ThreadJob job(2);
  job.run([](Communicator& c) {
    const std::vector<Tensor> values = {tensor({c.rank() + 1.0}), tensor({c.rank() + 4.0})};
    EXPECT_EQ(to_vector<float>(reduce_across(c, kName, ReduceOp::kMean, values)),
              (std::vector<float>{3}));
    EXPECT_EQ(sum_across(c, 10 + c.rank()), 21);
  });
}

// Each would divide by another number.
TEST(WorkerCollectives, AMeanOfUnlikeNumbersOfValuesIsAnError) {
  ThreadJob job(2);
  job.run([](Communicator& c) {
    const std::vector<Tensor> values(static_cast<std::size_t>(c.rank() + 1), ones({3}));
    c.take_turn("test", [&] {
      expect_error<FailedPrecondition>(
          {"float32[3] for a mean on worker 0", "float32[3] for a mean of 2 on worker 1"},
          [&] { reduce_across(c, kName, ReduceOp::kMean, values); });
      EXPECT_EQ(sum_across(c, 1), 2);
    });
  });
}

TEST(WorkerCollectives, JoinsAlongAnyAxis) {
  ThreadJob job(3);
  job.run([](Communicator& c) {
    // A transposed one, and one without rows on worker 0.
    const Tensor mine = full({c.rank(), 4}, c.rank()).t();
    std::vector<int64_t> sizes;
    const Tensor got = gather_across(c, kName, mine, -1, &sizes);
    EXPECT_EQ(shape_of(got), (Shape{4, 3}));
    EXPECT_EQ(to_vector<float>(got.select(0, 2)), (std::vector<float>{1, 2, 2}));
    EXPECT_EQ(sizes, (std::vector<int64_t>{0, 1, 2}));
  });
}

TEST(WorkerCollectives, JoinsSlices) {
  ThreadJob job(2);
  job.run([](Communicator& c) {
    const IndexedSlices mine{.values = full({c.rank() + 1, 2}, 4.0 * (c.rank() + 1)),
                             .indices = full({c.rank() + 1}, c.rank(), kInt64),
                             .dense_shape = {7, 2}};
    const IndexedSlices got = join_across(c, kName, ReduceOp::kMean, std::span(&mine, 1));
    EXPECT_EQ(to_vector<int64_t>(got.indices), (std::vector<int64_t>{0, 1, 1}));
    EXPECT_EQ(to_vector<float>(got.values), (std::vector<float>{2, 2, 4, 4, 4, 4}));
    EXPECT_EQ(got.dense_shape, (Shape{7, 2}));
  });
}

TEST(WorkerCollectives, BroadcastsTheRootsValue) {
  ThreadJob job(3);
  job.run([](Communicator& c) {
    const Tensor mine = full({3}, c.rank() + 1);
    const Tensor got = broadcast_across(c, kName, "\"w\"", mine, 2);
    EXPECT_EQ(to_vector<float>(got), std::vector<float>(3, 3));
    EXPECT_EQ(to_vector<float>(mine), std::vector<float>(3, static_cast<float>(c.rank() + 1)));
  });
}

TEST(WorkerCollectives, WhatDiffersNamesBothWorkersAndEndsNothing) {
  ThreadJob job(3);
  job.run([](Communicator& c) {
    const Tensor two = zeros({c.rank() == 2 ? 3 : 2});
    expect_error<FailedPrecondition>(
        {"[test] expected the same value on every worker, got float32[2] on worker 0",
         "float32[3] on worker 2"},
        [&] { reduce_across(c, kName, ReduceOp::kSum, std::span(&two, 1)); });
    const ReduceOp op = c.rank() == 1 ? ReduceOp::kMean : ReduceOp::kSum;
    const Tensor same = ones({2});
    expect_error<FailedPrecondition>(
        {"got float32[2] on worker 0", "float32[2] for a mean on worker 1"},
        [&] { reduce_across(c, kName, op, std::span(&same, 1)); });
    const IndexedSlices rows{
        .values = ones({1, 2}), .indices = zeros({1}, kInt64), .dense_shape = {7, 2}};
    expect_error<FailedPrecondition>({"[7, 2] on worker 0", "[7, 2] for a mean on worker 1"},
                                     [&] { join_across(c, kName, op, std::span(&rows, 1)); });
    const Tensor typed = zeros({2}, c.rank() == 1 ? kFloat64 : kFloat32);
    expect_error<FailedPrecondition>({"\"w\" float32[2] on worker 0", "float64[2] on worker 1"},
                                     [&] { broadcast_across(c, kName, "\"w\"", typed); });
    const Tensor wide = zeros({2, c.rank() + 1});
    expect_error<FailedPrecondition>({"but for the axis to join", "float32[1] along axis 0"},
                                     [&] { gather_across(c, kName, wide, 0); });
    EXPECT_EQ(sum_across(c, 1), 3);
  });
}

}  // namespace
}  // namespace cohort::internal::collectives
