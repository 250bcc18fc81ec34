// SPDX-License-Identifier: Apache-2.0
//
// Writes to rows: by kind, by context and aggregation, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort {
namespace {

using Rows = std::vector<double>;
using Components = std::vector<Rows>;
using Op = void (Variable::*)(const IndexedSlices&) const;

IndexedSlices slices(std::initializer_list<double> values, std::initializer_list<double> indices,
                     DType dtype = kFloat32) {
  return {.values = tensor(values, dtype), .indices = tensor(indices, kInt64)};
}

class Scatter : public internal::variables::ReplicasTest {
 protected:
  Variable table(Aggregation aggregation, DType dtype = kFloat32) {
    return make(zeros({3}, dtype), {.name = "t", .aggregation = aggregation});
  }
};

struct KindCase {
  const char* name;
  Op op;
  Rows expected;
};

// From {10, 20, 30}: rows 2, 0, 2 with 4, 5, 8; row 2 comes twice.
const KindCase kKinds[] = {
    {"add", &Variable::scatter_add, {15, 20, 42}},
    {"sub", &Variable::scatter_sub, {5, 20, 18}},
    {"mul", &Variable::scatter_mul, {50, 20, 960}},
    {"div", &Variable::scatter_div, {2, 20, 0.9375}},
    {"min", &Variable::scatter_min, {5, 20, 4}},
    {"max", &Variable::scatter_max, {10, 20, 30}},
    {"update", &Variable::scatter_update, {5, 20, 8}},
};

TEST(ScatterKinds, AccumulateRepeatedRowsInTheirOrder) {
  for (const KindCase& kind : kKinds) {
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt32, kInt64}) {
      const Variable v(tensor({10, 20, 30}, dtype));
      (v.*kind.op)(slices({4, 5, 8}, {2, 0, 2}, dtype));
      Rows expected = kind.expected;
      if (!at::isFloatingType(dtype)) {
        for (double& x : expected) x = std::trunc(x);
      }
      EXPECT_EQ(to_vector<double>(v.value()), expected) << kind.name << dtype_name(dtype);
    }
  }
}

TEST(ScatterKinds, WriteWholeRows) {
  const Variable v(arange(6, kFloat32).view({3, 2}));
  v.scatter_add({.values = tensor({1, 2, 10, 20}).view({2, 2}), .indices = tensor({2, 0}, kInt32)});
  EXPECT_EQ(to_vector<double>(v.value()), (Rows{10, 21, 2, 3, 5, 7}));
  // What is not contiguous, has no rows, or is the variable itself.
  v.scatter_update({.values = tensor({1, 3, 2, 4}).view({2, 2}).t(),
                    .indices = tensor({0, 1}, kInt64),
                    .dense_shape = {3, 2}});
  EXPECT_EQ(to_vector<double>(v.value()), (Rows{1, 2, 3, 4, 5, 7}));
  v.scatter_add({.values = empty({0, 2}), .indices = empty({0}, kInt64)});
  v.scatter_add({.values = v.value(), .indices = tensor({2, 1, 0}, kInt64)});
  EXPECT_EQ(to_vector<double>(v.value()), (Rows{6, 9, 6, 8, 6, 9}));
}

TEST(ScatterKinds, IntegersHaveNoInfinity) {
  const Variable v(tensor({7, -7}, kInt32));
  testing::expect_error<InvalidArgument>({"[variable.scatter_div]", "other than 0"},
                                         [&] { v.scatter_div(slices({0}, {1}, kInt32)); });
  v.scatter_div(slices({-2, 2}, {0, 1}, kInt32));
  EXPECT_EQ(to_vector<double>(v.value()), (Rows{-3, -3}));
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const Variable big(from_vector<int64_t>({lowest}, {1}));
  big.scatter_div(slices({-1}, {0}, kInt64));
  EXPECT_EQ(big.value().item<int64_t>(), lowest);
}

TEST(ScatterKinds, OfABooleanOnlyUpdate) {
  const Variable v(tensor({0, 0}, kBool));
  v.scatter_update(slices({1}, {1}, kBool));
  EXPECT_EQ(to_vector<double>(v.value()), (Rows{0, 1}));
  EXPECT_THROW(v.scatter_add(slices({1}, {1}, kBool)), InvalidArgument);
}

TEST(ScatterKinds, BumpTheVersion) {
  const Variable v(tensor({1, 2}));
  const auto before = v.value()._version();
  v.scatter_add(slices({1}, {0}));
  EXPECT_GT(v.value()._version(), before);
}

TEST_F(Scatter, CrossReplicaReachesEveryComponent) {
  for (const Aggregation aggregation : {Aggregation::kNone, Aggregation::kSum, Aggregation::kMean,
                                        Aggregation::kOnlyFirstReplica}) {
    for (const KindCase& kind : kKinds) {
      const Variable v = make(tensor({10, 20, 30}), {.aggregation = aggregation});
      (v.*kind.op)(slices({4, 5, 8}, {2, 0, 2}));
      EXPECT_EQ(components(v), (Components{kind.expected, kind.expected})) << kind.name;
    }
  }
}

TEST_F(Scatter, ReplicasJoinTheirSlicesByAggregation) {
  const auto step = [](const Variable& v, Op op, int r, DType dtype = kFloat32) {
    (v.*op)({.values = tensor({double(r), r + 1.0}, dtype),
             .indices = tensor({double(r), r + 1.0}, kInt64)});
  };
  const Variable mean = table(Aggregation::kMean);
  group_.run([&](int r) { step(mean, &Variable::scatter_sub, r); });
  EXPECT_EQ(components(mean), (Components{{0, -1, -1}, {0, -1, -1}}));
  const Variable sum = table(Aggregation::kSum, kInt32);
  group_.run([&](int r) { step(sum, &Variable::scatter_add, r, kInt32); });
  EXPECT_EQ(components(sum), (Components{{0, 2, 2}, {0, 2, 2}}));
  const Variable first = table(Aggregation::kOnlyFirstReplica);
  group_.run([&](int r) { step(first, &Variable::scatter_add, r); });
  EXPECT_EQ(components(first), (Components{{0, 1, 0}, {0, 1, 0}}));
  const Variable none = table(Aggregation::kNone);
  group_.run([&](int r) { step(none, &Variable::scatter_add, r); });
  EXPECT_EQ(components(none), (Components{{0, 1, 0}, {0, 1, 2}}));
  const Variable product = make(ones({3}), {.aggregation = Aggregation::kSum});
  group_.run([&](int r) { step(product, &Variable::scatter_mul, r); });
  EXPECT_EQ(components(product), (Components{{0, 1, 2}, {0, 1, 2}}));
  const Variable quotient = make(ones({3}), {.aggregation = Aggregation::kMean});
  group_.run([&](int r) { step(quotient, &Variable::scatter_div, r); });
  EXPECT_EQ(components(quotient)[0][1], 4);  // by a half, twice
}

TEST_F(Scatter, ReplicasMayBringDifferentNumbersOfRows) {
  const Variable v = table(Aggregation::kSum);
  group_.run([&](int r) { v.scatter_add(r == 0 ? slices({}, {}) : slices({1, 2, 3}, {0, 0, 2})); });
  EXPECT_EQ(components(v), (Components{{3, 0, 3}, {3, 0, 3}}));
}

TEST_F(Scatter, MinimaOfReplicasHaveNoSum) {
  for (const Op op : {&Variable::scatter_min, &Variable::scatter_max, &Variable::scatter_update}) {
    for (const Aggregation aggregation : {Aggregation::kSum, Aggregation::kMean}) {
      const Variable v = table(aggregation);
      testing::expect_error<Unimplemented>(
          {"[variable.scatter_", "\"t\"", "expected aggregation none or only_first_replica",
           aggregation == Aggregation::kSum ? "got sum" : "got mean", "cross-replica"},
          [&] { group_.run([&](int) { (v.*op)(slices({1}, {0})); }); });
    }
    const Variable first = table(Aggregation::kOnlyFirstReplica);
    group_.run([&](int r) { (first.*op)(slices({r - 1.0}, {1})); });
    const double expected = op == &Variable::scatter_max ? 0 : -1;
    EXPECT_EQ(components(first), (Components{{0, expected, 0}, {0, expected, 0}}));
  }
}

TEST_F(Scatter, WhatIsReadTogetherHasNoRowsToWrite) {
  const Variable v = make(
      zeros({3}),
      {.name = "t", .synchronization = Synchronization::kOnRead, .aggregation = Aggregation::kSum});
  testing::expect_error<Unimplemented>({"[variable.scatter_add]", "\"t\"", "on read"},
                                       [&] { v.scatter_add(slices({1}, {0})); });
  EXPECT_THROW(group_.run([&](int) { v.scatter_update(slices({1}, {0})); }), Unimplemented);
  v.components()[1].scatter_add(slices({1}, {0}));
  EXPECT_EQ(components(v), (Components{{0, 0, 0}, {1, 0, 0}}));
}

TEST_F(Scatter, TheSameSlicesOnEveryReplicaCannotBeSummed) {
  const IndexedSlices captured = slices({2}, {1});
  const Variable sum = table(Aggregation::kSum);
  testing::expect_error<InvalidArgument>(
      {"[variable.scatter_add]", "\"t\"", "the same slices on each of 2 replicas"},
      [&] { group_.run([&](int) { sum.scatter_add(captured); }); });
  const Variable mean = table(Aggregation::kMean);
  group_.run([&](int) { mean.scatter_add(captured); });
  EXPECT_EQ(components(mean), (Components{{0, 2, 0}, {0, 2, 0}}));
}

TEST_F(Scatter, RefusesWhatDoesNotFitAndWritesNothing) {
  const Variable v = make(zeros({3, 2}), {.name = "t", .aggregation = Aggregation::kSum});
  const Tensor row = ones({1, 2});
  const auto index = [](double i) { return tensor({i}, kInt64); };
  const auto refused = [&](const IndexedSlices& x, testing::Words words) {
    testing::expect_error<InvalidArgument>(words, [&] { v.scatter_add(x); });
    testing::expect_error<InvalidArgument>(words, [&] {
      group_.run([&](int r) {
        v.scatter_add(r == 0 ? IndexedSlices{ones({1, 2}), tensor({0}, kInt64), {}} : x);
      });
    });
  };
  refused({row, index(3), {}}, {"[variable.scatter_add]", "[0, 3)", "\"t\"", "got 3"});
  refused({row, index(-1), {}}, {"[0, 3)", "\"t\"", "got -1"});
  refused({ones({2}), index(0), {}}, {"rows of shape [1, 2]", "\"t\"", "got [2]"});
  refused({ones({2, 2}), index(0), {}}, {"rows of shape [1, 2]", "\"t\"", "got [2, 2]"});
  refused({ones({1, 2}, kFloat64), index(0), {}}, {"rows of float32", "\"t\"", "got float64"});
  refused({row, tensor({0}), {}}, {"int32 or int64 indices", "\"t\"", "got float32"});
  refused({row, index(0).view({1, 1}), {}}, {"a list of indices", "\"t\"", "got shape [1, 1]"});
  refused({row, index(0), {4, 2}}, {"shape [3, 2]", "\"t\"", "got slices of shape [4, 2]"});
  refused({Tensor(), index(0), {}}, {"expected rows", "\"t\""});
  refused({row, Tensor(), {}}, {"expected indices", "\"t\""});
  EXPECT_EQ(components(v), (Components{Rows(6, 0), Rows(6, 0)}));
  const Variable number = make(1.0, {.name = "n"});
  testing::expect_error<InvalidArgument>({"a variable with rows", "\"n\""},
                                         [&] { number.scatter_add(slices({1}, {0})); });
}

TEST_F(Scatter, ReplicasWriteTheSameVariableInTheSameWay) {
  const Variable a = make(zeros({3}), {.name = "a", .aggregation = Aggregation::kSum});
  const Variable b = make(zeros({3}), {.name = "b", .aggregation = Aggregation::kSum});
  testing::expect_error<FailedPrecondition>(
      {"expected every replica to write variable " + label(a.impl()) + " here",
       "of " + label(b.impl()) + " on replica 1"},
      [&] { group_.run([&](int r) { (r == 0 ? a : b).scatter_add(slices({1}, {0})); }); });
  testing::expect_error<FailedPrecondition>(
      {"got [variable.scatter_sub] of " + label(a.impl()) + " on replica 1"}, [&] {
        group_.run([&](int r) {
          r == 0 ? a.scatter_add(slices({1}, {0})) : a.scatter_sub(slices({1}, {0}));
        });
      });
}

TEST_F(Scatter, CentralStorageIsWrittenOnce) {
  const auto creator = std::make_shared<internal::variables::LocalVariables>(
      internal::variables::LocalVariablesOptions{
          .devices = devices(2),
          .placement = internal::variables::ParameterPlacement::kCentral,
          .group = &group_});
  const internal::variables::VariableCreatorScope scope(creator);
  const Variable sum(zeros({3}), {.aggregation = Aggregation::kSum});
  group_.run([&](int r) { sum.scatter_add(slices({r + 1.0}, {1})); });
  sum.scatter_add(slices({1}, {2}));
  EXPECT_EQ(to_vector<double>(sum.value()), (Rows{0, 3, 1}));
  const Variable none(zeros({3}), {.name = "none"});
  testing::expect_error<InvalidArgument>(
      {"[variable.scatter_min]", "expected an aggregation", "\"none\""},
      [&] { group_.run([&](int) { none.scatter_min(slices({1}, {1})); }); });
}

TEST_F(Scatter, SparseReadsTakeRowsOfWhatAReadGives) {
  const Variable v = make(arange(6, kFloat32).view({3, 2}), {.name = "t"});
  group_.run([&](int r) { v.assign_add(scalar(10 * r)); });
  const Tensor indices = tensor({2, 0, 2, 1}, kInt32).view({2, 2});
  EXPECT_EQ(shape_of(v.sparse_read(indices)), (Shape{2, 2, 2}));
  EXPECT_EQ(to_vector<double>(v.sparse_read(indices)), (Rows{4, 5, 0, 1, 4, 5, 2, 3}));
  group_.run([&](int r) {
    EXPECT_EQ(to_vector<double>(v.sparse_read(tensor({1}, kInt64))),
              (Rows{2 + 10.0 * r, 3 + 10.0 * r}));
  });
  EXPECT_EQ(shape_of(v.sparse_read(empty({0}, kInt64))), (Shape{0, 2}));
  // Of each replica's component these rows alone are read and added.
  const Variable sum = make(zeros({3, 2}), {.synchronization = Synchronization::kOnRead,
                                            .aggregation = Aggregation::kSum});
  group_.run([&](int r) { sum.assign(arange(6, kFloat32).view({3, 2}) * (r + 1)); });
  EXPECT_EQ(to_vector<double>(sum.sparse_read(tensor({2, 1}, kInt64))), (Rows{12, 15, 6, 9}));
  testing::expect_error<InvalidArgument>({"[variable.sparse_read]", "[0, 3)", "\"t\"", "got 3"},
                                         [&] { v.sparse_read(tensor({3}, kInt64)); });
}

}  // namespace
}  // namespace cohort
