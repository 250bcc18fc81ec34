// SPDX-License-Identifier: Apache-2.0
#include "cohort/collectives/group_collectives.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>

#include "cohort/base/cpu.h"
#include "cohort/base/error.h"
#include "cohort/base/strings.h"
#include "cohort/reductions/local_reduce.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"
#include "cohort/values/indexed_slices.h"

namespace cohort::internal::collectives {
namespace {

using Kind = CollectiveLeaf::Kind;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

void run(runtime::ReplicaGroup& group, base::FunctionRef<void(int)> body) {
  testing::run_with_deadline(std::chrono::seconds(60), [&] { group.run(body); });
}

/// Numbers of many magnitudes, so that another order of additions rounds differently.
Tensor numbers(int64_t count, DType dtype, int replica) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const double scale = dtype == kFloat32 || dtype == kFloat64 ? std::pow(10, (i * 7) % 9 - 4) : 1;
    values.push_back(((i * 37 + replica * 101 + 13) % 97 - 41.3) * scale);
  }
  Tensor t = from_vector(values, {count});
  return dtype == kBool ? t.gt(0) : t.to(dtype);
}

/// What LibTorch makes of them one after the other.
Tensor one_by_one(ReduceOp op, const std::vector<Tensor>& values) {
  Tensor total = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (op == ReduceOp::kMin) {
      total = at::minimum(total, values[i]);
    } else if (op == ReduceOp::kMax) {
      total = at::maximum(total, values[i]);
    } else {
      total = op == ReduceOp::kProduct ? total.mul(values[i]) : total.add(values[i]);
    }
  }
  return op == ReduceOp::kMean ? total.div(static_cast<double>(values.size())) : total;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

/// All-reduces one tensor per replica, and compares every replica's result with the oracle.
void expect_one_by_one(ReduceOp op, const std::vector<Tensor>& values, const char* what) {
  runtime::ReplicaGroup group({.replicas = static_cast<int>(values.size())});
  std::vector<Tensor> results(values.size());
  run(group, [&](int r) { results[r] = all_reduce(&group, op, values[r]); });
  const Tensor expected = one_by_one(op, values);
  for (std::size_t r = 0; r < values.size(); ++r) {
    EXPECT_TRUE(same_bits(results[r], expected))
        << reduce_op_name(op) << " of " << what << " on replica " << r << " of " << values.size();
    EXPECT_TRUE(values.size() == 1 || r == 0 || values[0].numel() == 0 ||
                results[r].data_ptr() != results[0].data_ptr());
  }
}

TEST(AllReduce, HasTheBitsOfAdditionInReplicaOrder) {
  for (int replicas = 1; replicas <= 5; ++replicas) {
    for (const int64_t count : {0, 1, 7, 64, 1023, 1025, 4099, 100003}) {
      std::vector<Tensor> values;
      for (int r = 0; r < replicas; ++r) values.push_back(numbers(count, kFloat32, r));
      expect_one_by_one(ReduceOp::kSum, values, str_cat(count, " floats").c_str());
      expect_one_by_one(ReduceOp::kMean, values, str_cat(count, " floats").c_str());
    }
  }
}

TEST(AllReduce, OfEveryDtypeAndReduction) {
  for (const DType dtype : {kUint8, DType::Char, DType::Short, kInt32, kInt64, kFloat16, kBFloat16,
                            kFloat32, kFloat64, kBool}) {
    for (const ReduceOp op : kOps) {
      const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
      if (dtype == kBool && !extreme) continue;
      if (op == ReduceOp::kMean && !at::isFloatingType(dtype)) continue;
      for (const int64_t count : {3, 5003}) {
        const std::vector<Tensor> values = {numbers(count, dtype, 0), numbers(count, dtype, 1),
                                            numbers(count, dtype, 2)};
        expect_one_by_one(op, values, dtype_name(dtype));
      }
    }
  }
}

TEST(AllReduce, OnEveryInstructionSet) {
  using cohort::internal::base::Isa;
  const base::Isa best = cohort::internal::base::best_isa();
  for (int isa = 0; isa <= static_cast<int>(best); ++isa) {
    cohort::internal::base::use_isa(static_cast<base::Isa>(isa));
    for (const DType dtype : {kFloat32, kFloat64}) {
      const std::vector<Tensor> values = {numbers(3001, dtype, 0), numbers(3001, dtype, 1),
                                          numbers(3001, dtype, 2)};
      expect_one_by_one(ReduceOp::kSum, values, "an instruction set");
      expect_one_by_one(ReduceOp::kMean, values, "an instruction set");
    }
  }
  cohort::internal::base::use_isa(best);
}

TEST(AllReduce, OfViewsAndStrides) {
  std::vector<Tensor> unaligned, transposed, negated;
  for (int r = 0; r < 2; ++r) {
    unaligned.push_back(numbers(5002, kFloat32, r).narrow(0, 1, 5001));
    transposed.push_back(numbers(61 * 83, kFloat32, r).view({61, 83}).t());
    negated.push_back(numbers(4000, kFloat32, r)._neg_view());
  }
  expect_one_by_one(ReduceOp::kSum, unaligned, "unaligned views");
  expect_one_by_one(ReduceOp::kSum, transposed, "transposed views");
  expect_one_by_one(ReduceOp::kSum, negated, "negated views");
}

TEST(AllReduce, PastTheCaches) {
  const int64_t count =
      reductions::kStreamBytes / 16 + 37;  // two values and two results pass the limit
  std::vector<Tensor> values;
  for (int r = 0; r < 2; ++r) values.push_back(arange(count).to(kFloat32).add(r));
  expect_one_by_one(ReduceOp::kMean, values, "a large tensor");
  values[0] = values[0].narrow(0, 3, count - 3);
  values[1] = values[1].narrow(0, 2, count - 3);
  expect_one_by_one(ReduceOp::kSum, values, "a large unaligned tensor");
}

TEST(AllReduce, GoesThroughTheReducerOfTheValuesMemory) {
  struct Counting final : reductions::RangeReducer {
    Counting() : before(reductions::exchange_range_reducer(c10::kCPU, this)) {}
    ~Counting() override { reductions::exchange_range_reducer(c10::kCPU, before); }
    void reduce(const reductions::RangeReduction& range) override {
      ++calls;
      before->reduce(range);
    }
    int calls = 0;
    reductions::RangeReducer* const before;
  };
  Counting counting;
  all_reduce(nullptr, ReduceOp::kSum, tensor({1, 8}));
  EXPECT_EQ(counting.calls, 1);
}

TEST(AllReduce, WithoutAGroupIsACopy) {
  const Tensor value = tensor({1, 2});
  const Tensor result = all_reduce(nullptr, ReduceOp::kMean, value);
  EXPECT_EQ(to_vector<float>(result), (std::vector<float>{1, 2}));
  EXPECT_NE(result.data_ptr(), value.data_ptr());
}

/// What a replica holds in the tests of nests.
struct Values {
  explicit Values(int r)
      : small(numbers(3, kFloat32, r)),
        large(numbers(70001, kFloat64, r)),
        integers(numbers(700, kInt64, r)),
        rows{numbers(r + 1, kFloat32, r), arange(r + 1), {10}},
        number(r + 1) {}
  std::vector<CollectiveLeaf> leaves() {
    const auto sum = [](ReduceOp, std::span<const void* const> all, void* result) {
      int added = 0;
      for (const void* one : all) added += *static_cast<const int*>(one);
      *static_cast<int*>(result) = added;
    };
    return {{.kind = Kind::kTensor, .in = &small, .out = &out[0]},
            {.kind = Kind::kNumber, .in = &number, .out = &total, .reduce = sum},
            {.kind = Kind::kTensor, .in = &large, .out = &out[1]},
            {.kind = Kind::kSlices, .in = &rows, .out = &joined},
            {.kind = Kind::kNone},
            {.kind = Kind::kTensor, .in = &integers, .out = &out[2]}};
  }
  Tensor small, large, integers;
  IndexedSlices rows;
  int number;
  Tensor out[3];
  IndexedSlices joined;
  int total = 0;
};

TEST(AllReduce, ReducesAllLeavesAtOneMeeting) {
  runtime::ReplicaGroup group({.replicas = 3});
  std::vector<Values> values = {Values(0), Values(1), Values(2)};
  run(group, [&](int r) {
    const uint64_t before = group.epoch(r);
    all_reduce_leaves(&group, ReduceOp::kSum, values[r].leaves());
    EXPECT_EQ(group.epoch(r), before + 2);  // all have come, all are done
  });
  for (const Values& v : values) {
    EXPECT_TRUE(same_bits(
        v.out[0], one_by_one(ReduceOp::kSum, {values[0].small, values[1].small, values[2].small})));
    EXPECT_TRUE(same_bits(
        v.out[1], one_by_one(ReduceOp::kSum, {values[0].large, values[1].large, values[2].large})));
    EXPECT_TRUE(same_bits(
        v.out[2],
        one_by_one(ReduceOp::kSum, {values[0].integers, values[1].integers, values[2].integers})));
    EXPECT_EQ(v.total, 6);
    EXPECT_EQ(to_vector<int64_t>(v.joined.indices), (std::vector<int64_t>{0, 0, 1, 0, 1, 2}));
  }
}

TEST(AllReduce, MeansOfSparseRowsAreScaled) {
  runtime::ReplicaGroup group({.replicas = 2});
  std::vector<IndexedSlices> joined(2);
  run(group, [&](int r) {
    const IndexedSlices rows{tensor({1.0 + r}), tensor({double(r)}, kInt64), {4}};
    const CollectiveLeaf leaf{.kind = Kind::kSlices, .in = &rows, .out = &joined[r]};
    all_reduce_leaves(&group, ReduceOp::kMean, std::span(&leaf, 1));
  });
  for (const IndexedSlices& slices : joined) {
    EXPECT_EQ(to_vector<float>(slices.to_dense()), (std::vector<float>{0.5, 1, 0, 0}));
  }
}

TEST(AllReduce, ManyTimesInARow) {
  runtime::ReplicaGroup group({.replicas = 4});
  run(group, [&](int r) {
    for (int i = 0; i < 300; ++i) {
      const Tensor value = full({i % 2 == 0 ? 5 : 3000}, r + i);
      const Tensor sum = all_reduce(&group, ReduceOp::kSum, value);
      ASSERT_EQ(sum.min().item<float>(), 6 + 4 * i);
      ASSERT_EQ(sum.max().item<float>(), 6 + 4 * i);
    }
  });
}

TEST(AllGather, JoinsInReplicaOrder) {
  runtime::ReplicaGroup group({.replicas = 3});
  std::vector<Tensor> joined(3);
  std::vector<std::vector<int64_t>> sizes(3);
  run(group, [&](int r) {
    const Tensor value = full({2, r}, r);
    const CollectiveLeaf leaf{.kind = Kind::kTensor, .in = &value, .out = &joined[r]};
    all_gather_leaves(&group, -1, std::span(&leaf, 1), std::span(&sizes[r], 1));
  });
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(to_vector<float>(joined[r]), (std::vector<float>{1, 2, 2, 1, 2, 2}));
    EXPECT_EQ(sizes[r], (std::vector<int64_t>{0, 1, 2}));
  }
}

// --- errors -------------------------------------------------------------------------------------

void expect_works(runtime::ReplicaGroup& group) {
  run(group, [&](int) { EXPECT_EQ(all_reduce(&group, ReduceOp::kSum, ones({1})).numel(), 1); });
}
/// What the caller of run gets has the words; the group works afterwards.
template <class E>
void expect_refused(runtime::ReplicaGroup& group, testing::Words words,
                    base::FunctionRef<void(int)> body) {
  testing::expect_error<E>(words, [&] { run(group, body); });
  expect_works(group);
}

/// The same of the whole text.
template <class E>
void expect_text(runtime::ReplicaGroup& group, const char* text,
                 base::FunctionRef<void(int)> body) {
  EXPECT_EQ(testing::error_text<E>([&] { run(group, body); }), text);
  expect_works(group);
}

TEST(CollectiveErrors, NameWhatDiffersAndOnWhom) {
  runtime::ReplicaGroup group({.replicas = 3});
  expect_text<InvalidArgument>(
      group,
      "[replica_context.all_reduce] expected shape [2, 5] on every replica, got [3, 5] on "
      "replica 2",
      [&](int r) {
        all_reduce(&group, ReduceOp::kSum, zeros({r == 2 ? 3 : 2, 5}));
      });
  expect_text<InvalidArgument>(
      group,
      "[replica_context.all_reduce] expected dtype float32 on every replica, got int32 on "
      "replica 1",
      [&](int r) { all_reduce(&group, ReduceOp::kSum, zeros({2}, r == 1 ? kInt32 : kFloat32)); });
  expect_text<FailedPrecondition>(
      group,
      "[replica_context.all_reduce] expected the same collective on every replica, got all_reduce "
      "of sum on replica 0 and all_reduce of max on replica 1",
      [&](int r) { all_reduce(&group, r == 1 ? ReduceOp::kMax : ReduceOp::kSum, zeros({2})); });
}

TEST(CollectiveErrors, OfStructureAndKind) {
  runtime::ReplicaGroup group({.replicas = 2});
  const Tensor dense = ones({2});
  const IndexedSlices sparse{ones({1}), zeros({1}, kInt64), {2}};
  expect_refused<InvalidArgument>(
      group, {"a dense tensor on replica 0 and indexed slices on replica 1"}, [&](int r) {
        Tensor out;
        IndexedSlices rows;
        const CollectiveLeaf leaf =
            r == 0 ? CollectiveLeaf{.kind = Kind::kTensor, .in = &dense, .out = &out}
                   : CollectiveLeaf{.kind = Kind::kSlices, .in = &sparse, .out = &rows};
        all_reduce_leaves(&group, ReduceOp::kSum, std::span(&leaf, 1));
      });
  expect_refused<InvalidArgument>(group, {"1 leaves on replica 0 and 2 on replica 1"}, [&](int r) {
    Tensor out[2];
    std::vector<CollectiveLeaf> leaves(r + 1, {.kind = Kind::kTensor, .in = &dense, .out = out});
    all_reduce_leaves(&group, ReduceOp::kSum, leaves);
  });
}

TEST(CollectiveErrors, OfDtypesThatDoNotReduce) {
  runtime::ReplicaGroup group({.replicas = 2});
  const auto refuses = [&](ReduceOp op, DType dtype, std::string_view words) {
    expect_refused<InvalidArgument>(group, {words},
                                    [&](int) { all_reduce(&group, op, zeros({2}, dtype)); });
  };
  refuses(ReduceOp::kMean, kInt64, "expected a floating type for mean, got int64");
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kProduct}) {
    refuses(op, kBool, "got bool");
  }
  refuses(ReduceOp::kMax, DType::ComplexFloat, "expected ordered numbers for max");
  expect_refused<InvalidArgument>(group, {"got an empty handle"},
                                  [&](int) { all_reduce(&group, ReduceOp::kSum, Tensor()); });
}

TEST(CollectiveErrors, DifferentCollectivesNeverHang) {
  runtime::ReplicaGroup group({.replicas = 3});
  const Tensor value = ones({2});
  expect_refused<FailedPrecondition>(
      group, {"all_reduce of sum on replica 0 and all_gather along axis 0 on replica 1"},
      [&](int r) {
        Tensor out;
        const CollectiveLeaf leaf{.kind = Kind::kTensor, .in = &value, .out = &out};
        if (r == 1) {
          all_gather_leaves(&group, 0, std::span(&leaf, 1));
        } else {
          all_reduce_leaves(&group, ReduceOp::kSum, std::span(&leaf, 1));
        }
      });
  expect_refused<FailedPrecondition>(group, {}, [&](int r) {
    if (r != 0) all_reduce(&group, ReduceOp::kSum, value);
  });
}

TEST(CollectiveErrors, OfGathering) {
  runtime::ReplicaGroup group({.replicas = 2});
  const auto refuses = [&](int64_t axis, std::string_view words,
                           const std::function<Tensor(int)>& make) {
    expect_refused<InvalidArgument>(group, {words}, [&](int r) {
      const Tensor value = make(r);
      Tensor out;
      const CollectiveLeaf leaf{.kind = Kind::kTensor, .in = &value, .out = &out};
      all_gather_leaves(&group, axis, std::span(&leaf, 1));
    });
  };
  refuses(0, "got a scalar", [](int) { return scalar(1); });
  refuses(2, "axis of rank 2, got 2", [](int) { return ones({2, 2}); });
  refuses(0, "[2, 1] and [2, 2] on replica 1", [](int r) { return ones({2, r + 1}); });
  refuses(0, "dtype float32", [](int r) { return ones({2}, r ? kFloat64 : kFloat32); });
}

}  // namespace
}  // namespace cohort::internal::collectives
