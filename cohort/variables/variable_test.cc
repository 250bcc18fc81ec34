// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/variable.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/component.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort {
namespace {

using internal::variables::VariableCreatorScope;
using testing::expect_error;

/// Two replicas on threads, and the creator of their variables.
class TwoReplicas : public internal::variables::ReplicasTest {
 protected:
  std::vector<float> component(const Variable& v, std::size_t i) {
    return to_vector<float>(v.components()[i].value());
  }
};

TEST_F(TwoReplicas, NamesComponentsAndKeepsTheirMemoryApart) {
  const Variable w = make(tensor({1, 2, 3}), {.name = "w"});
  const auto parts = w.components();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name(), "w");
  EXPECT_EQ(parts[1].name(), "w/replica_1");
  EXPECT_EQ(parts[1].device().short_name(), "CPU:1");
  EXPECT_NE(parts[0].value().data_ptr(), parts[1].value().data_ptr());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parts[1].value().data_ptr()) % 64, 0U);
  EXPECT_EQ(component(w, 1), (std::vector<float>{1, 2, 3}));
}

TEST_F(TwoReplicas, CrossReplicaWritesReachEveryComponent) {
  const Variable v = make(tensor({1, 2}));
  v.assign(tensor({5, 6}));
  v.assign_add(1.0);
  EXPECT_EQ(component(v, 0), (std::vector<float>{6, 7}));
  EXPECT_EQ(component(v, 1), (std::vector<float>{6, 7}));
  v.assign(PerReplica<Tensor>({tensor({1, 1}), tensor({2, 2})}));
  EXPECT_EQ(component(v, 1), (std::vector<float>{2, 2}));
  EXPECT_THROW(v.assign(tensor({1, 2, 3})), InvalidArgument);
}

TEST_F(TwoReplicas, ReplicaWritesFollowTheAggregation) {
  const Variable none = make(scalar(1));
  const Variable sum = make(scalar(1), {.aggregation = Aggregation::kSum});
  const Variable mean = make(scalar(1), {.aggregation = Aggregation::kMean});
  const Variable first = make(scalar(1), {.aggregation = Aggregation::kOnlyFirstReplica});
  group_.run([&](int r) {
    none.assign(scalar(r));
    sum.assign(scalar(r + 1));
    mean.assign_add(scalar(r));
    first.assign(scalar(r + 7));
  });
  EXPECT_EQ(component(none, 0), std::vector<float>{0});
  EXPECT_EQ(component(none, 1), std::vector<float>{1});
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(component(sum, i), std::vector<float>{3});
    EXPECT_EQ(component(mean, i), std::vector<float>{1.5});
    EXPECT_EQ(component(first, i), std::vector<float>{7});
  }
  EXPECT_THROW(group_.run([&](int) { sum.assign(5.0); }), InvalidArgument);
  group_.run([&](int) { mean.assign(5.0); });
  EXPECT_EQ(component(mean, 1), std::vector<float>{5});
}

TEST_F(TwoReplicas, OnReadSumsWhenReadAndSharesWhenAssigned) {
  const Variable total = make(
      scalar(0), {.synchronization = Synchronization::kOnRead, .aggregation = Aggregation::kSum});
  EXPECT_FALSE(total.trainable());
  group_.run([&](int r) { total.assign_add(scalar(r + 1)); });
  EXPECT_EQ(total.value().item<float>(), 3);
  total.assign(scalar(6));
  EXPECT_EQ(component(total, 0), std::vector<float>{3});
  EXPECT_EQ(total.value().item<float>(), 6);
  EXPECT_THROW(total.assign_add(scalar(1)), InvalidArgument);

  const Variable integer = make(scalar(0, kInt64), {.synchronization = Synchronization::kOnRead,
                                                    .aggregation = Aggregation::kSum});
  integer.assign(scalar(7, kInt64));
  EXPECT_EQ(integer.value().item<int64_t>(), 7);

  const Variable unread = make(scalar(0), {.synchronization = Synchronization::kOnRead});
  EXPECT_THROW(unread.value(), InvalidArgument);
}

TEST_F(TwoReplicas, CreatingInReplicasMakesOneVariable) {
  const VariableCreatorScope scope(creator_);
  std::vector<Variable> made(2);
  group_.run([&](int r) {
    const VariableCreatorScope in_thread(creator_);
    made[static_cast<std::size_t>(r)] = Variable(scalar(r + 3), {.name = "v"});
  });
  EXPECT_TRUE(made[0] == made[1]);
  EXPECT_EQ(component(made[0], 1), std::vector<float>{3});
}

TEST_F(TwoReplicas, ReplicasCreateAlike) {
  const auto differs = [&](std::vector<InitialValue> initial, std::vector<VariableOptions> options,
                           testing::Words parts) {
    expect_error<FailedPrecondition>(parts, [&] {
      group_.run([&](int r) {
        const auto i = static_cast<std::size_t>(r);
        const VariableCreatorScope in_thread(creator_);
        const Variable v(initial[i], options[i]);
      });
    });
  };
  differs({0.0, 0.0}, {{.name = "a"}, {.name = "b"}},
          {"[variable] expected every replica to create \"a\" (float32 []", "as replica 0 does",
           "got \"b\" (float32 []", "on replica 1"});
  differs({tensor({1}), tensor({1, 2})}, {{.name = "a"}, {.name = "a"}},
          {"float32 [1]", "float32 [2]"});
  differs({tensor({1}), tensor({1}, kFloat64)}, {{.name = "a"}, {.name = "a"}}, {"float64 [1]"});
  differs({0.0, 0.0}, {{}, {.dtype = kInt32}}, {"\"Variable\" (float32 []", "int32 []"});
  differs({0.0, 0.0}, {{}, {.trainable = false}}, {", trainable", "not trainable"});
  differs({0.0, 0.0}, {{.aggregation = Aggregation::kMean}, {}},
          {"aggregation mean", "aggregation none"});
  differs({0.0, 0.0}, {{.trainable = true}, {.synchronization = Synchronization::kOnRead}},
          {"synchronization on write", "synchronization on read"});
  differs({0.0, 0.0}, {{}, {.constraint = [](const Tensor& x) { return x; }}}, {"constrained"});
}

TEST_F(TwoReplicas, NeighboursTouchAndFreedPlacesAreReused) {
  const Variable a = make(zeros({3}));
  int64_t second = 0;
  {
    const Variable b = make(ones({5}));
    second = internal::variables::local_impl(b.impl()).leaf_of(0).range->offset;
    EXPECT_EQ(second, internal::variables::local_impl(a.impl()).leaf_of(0).range->offset + 16);
  }
  const Variable c = make(zeros({5}));
  EXPECT_EQ(internal::variables::local_impl(c.impl()).leaf_of(0).range->offset, second);
  EXPECT_EQ(to_vector<float>(c.value()), std::vector<float>(5, 0));
}

TEST(InitialValue, KnowsWhichPartOfTheWholeItMakes) {
  const PartitionInfo last{{5, 2}, {3, 0}};
  std::vector<Shape> seen;
  const InitialValue made([&](const Shape& shape, DType dtype, const PartitionInfo& of) {
    seen.insert(seen.end(), {shape, of.shape, of.offset});
    return ones(shape, dtype);
  });
  EXPECT_EQ(shape_of(made.make_part({2, 2}, last, kFloat64)), (Shape{2, 2}));
  EXPECT_EQ(seen, (std::vector<Shape>{{2, 2}, {5, 2}, {3, 0}}));
  made.make(Shape{4}, {});
  EXPECT_EQ(seen.back(), Shape{0});
  EXPECT_EQ(seen[seen.size() - 2], Shape{4});
  const InitialValue tensor_of(arange(10, kFloat32).reshape({5, 2}));
  EXPECT_EQ(to_vector<float>(tensor_of.make_part({2, 1}, {{5, 2}, {3, 1}}, {})),
            (std::vector<float>{7, 9}));
  EXPECT_EQ(to_vector<float>(InitialValue(3.0).make_part({2}, {{5}, {3}}, {})),
            (std::vector<float>{3, 3}));
  testing::expect_error<InvalidArgument>({"[5, 2]", "[3, 2]", "[3, 0]"}, [&] {
    made.make_part({3, 2}, last, {});
  });
  testing::expect_error<InvalidArgument>({"[5]"}, [&] {
    tensor_of.make_part({2}, {{5}, {3}}, {});
  });
}

TEST(Variable, ChecksItsOptions) {
  EXPECT_THROW(Variable(scalar(1, kInt32), {.aggregation = Aggregation::kMean}), InvalidArgument);
  EXPECT_THROW(Variable(scalar(1), {.synchronization = Synchronization::kNone}), InvalidArgument);
  EXPECT_THROW(Variable(tensor({1, 2}), {.shape = Shape{3}}), InvalidArgument);
  const auto make = [](const Shape& s, DType t, const PartitionInfo&) { return ones(s, t); };
  EXPECT_THROW(Variable{InitialValue(make)}, InvalidArgument);
  const Variable made(make, {.shape = Shape{2, 2}, .dtype = kFloat64});
  EXPECT_EQ(made.dtype(), kFloat64);
  EXPECT_EQ(made.value().sum().item<double>(), 4);
  EXPECT_THROW(Variable().name(), FailedPrecondition);
}

TEST(Variable, ChecksItsEnumerators) {
  expect_error<InvalidArgument>({"[variable]", "value of Synchronization for \"w\"", "got 9"}, [] {
    Variable(0.0, {.name = "w", .synchronization = static_cast<Synchronization>(9)});
  });
  expect_error<InvalidArgument>({"[variable]", "value of Aggregation for \"w\"", "got -1"}, [] {
    Variable(0.0, {.name = "w", .aggregation = static_cast<Aggregation>(-1)});
  });
  expect_error<InvalidArgument>({"\"w\"", "got none, which no strategy supports"}, [] {
    Variable(0.0, {.name = "w", .synchronization = Synchronization::kNone});
  });
  expect_error<InvalidArgument>({"floating type for \"w\"", "mean", "got int32"}, [] {
    Variable(scalar(1, kInt32), {.name = "w", .aggregation = Aggregation::kMean});
  });
  EXPECT_EQ(Variable(0.0).synchronization(), Synchronization::kOnWrite);
}

// Elements where one side is a tensor or a number; a variable is one thing.
TEST(Variable, IsComparedByElementsOrAsAThing) {
  const Variable a(tensor({1, 2})), b(tensor({1, 2}));
  EXPECT_EQ(to_vector<bool>(a == tensor({1, 3})), (std::vector<bool>{true, false}));
  EXPECT_EQ(to_vector<bool>(2 != a), (std::vector<bool>{true, false}));
  EXPECT_TRUE(a == a);
  EXPECT_TRUE(a != b);
}

TEST(Variable, IsTrainableUnlessOnReadOrAnInteger) {
  EXPECT_TRUE(Variable(0.0).trainable());
  EXPECT_FALSE(Variable(0.0, {.trainable = false}).trainable());
  EXPECT_FALSE(Variable(0.0, {.synchronization = Synchronization::kOnRead}).trainable());
  EXPECT_TRUE(
      Variable(0.0, {.trainable = true, .synchronization = Synchronization::kOnRead}).trainable());
  EXPECT_FALSE(Variable(scalar(0, kInt64)).trainable());
}

TEST(Variable, JoinsExpressions) {
  const Variable v(tensor({1, 2}));
  EXPECT_EQ(to_vector<float>(v + 1), (std::vector<float>{2, 3}));
  EXPECT_EQ(to_vector<float>(2 * v - v), (std::vector<float>{1, 2}));
}

TEST_F(TwoReplicas, AliasedWritesReachEveryComponentAlike) {
  const Variable w = make(tensor({1, 2}));
  w.assign_add(w.value());
  EXPECT_EQ(component(w, 0), (std::vector<float>{2, 4}));
  EXPECT_EQ(component(w, 1), (std::vector<float>{2, 4}));
  w.assign(PerReplica<Tensor>({tensor({1, 1}), tensor({2, 2})}));
  const auto parts = w.components();
  w.assign(PerReplica<Tensor>({parts[1].value(), parts[0].value()}));
  EXPECT_EQ(component(w, 0), (std::vector<float>{2, 2}));
  EXPECT_EQ(component(w, 1), (std::vector<float>{1, 1}));
}

TEST(Variable, WhatWasReadOutlivesTheVariable) {
  const auto read = [] { return Variable(tensor({1, 2, 3})).value(); };
  const Tensor value = read();
  const Variable other(tensor({7, 8, 9}));
  EXPECT_EQ(to_vector<float>(value), (std::vector<float>{1, 2, 3}));
}

TEST_F(TwoReplicas, ComponentsKnowTheirWhole) {
  const Variable w = make(tensor({1, 2}));
  const auto parts = w.components();
  EXPECT_TRUE(parts[1].impl().container() == w);
  EXPECT_TRUE(w.impl().container() == w);
  EXPECT_TRUE(parts[1] == w.components()[1]);
  EXPECT_FALSE(parts[0] == parts[1]);
  EXPECT_FALSE(parts[0] == w);
  EXPECT_FALSE(Variable() == w);
  EXPECT_TRUE(Variable() == Variable());
  EXPECT_TRUE(parts[1].components()[0] == parts[1]);
  EXPECT_THROW(parts[1].assign(tensor({1, 2, 3})), InvalidArgument);
}

TEST_F(TwoReplicas, TheStorageItselfOnlyInsideAReplica) {
  const Variable w = make(1.0, {.name = "w", .trainable = false});
  expect_error<InvalidArgument>(
      {"[variable.local_tensor]", "inside strategy.run", "\"w\"", "value() or components()"},
      [&] { w.local_tensor(); });
  group_.run([&](int r) { w.local_tensor().fill_(r); });
  EXPECT_EQ(components(w), (std::vector<std::vector<double>>{{0}, {1}}));
  EXPECT_EQ(w.components()[1].local_tensor().item<float>(), 1);
}

}  // namespace
}  // namespace cohort
