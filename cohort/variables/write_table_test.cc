// SPDX-License-Identifier: Apache-2.0
//
// The table of variable.h: synchronization x aggregation x context for writes and reads, with one,
// two and three replicas; and whose replicas may use a variable.
#include <gtest/gtest.h>

#include <limits>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/internal/test_replicas.h"

namespace cohort {
namespace {

using testing::expect_error;
using Components = std::vector<std::vector<double>>;
constexpr auto kOnRead = Synchronization::kOnRead;

constexpr Aggregation kAggregations[] = {Aggregation::kNone, Aggregation::kSum, Aggregation::kMean,
                                         Aggregation::kOnlyFirstReplica};

class WriteTable : public internal::variables::ReplicasTest,
                   public ::testing::WithParamInterface<int> {
 protected:
  WriteTable() : ReplicasTest(GetParam()) {}
  static int replicas() { return GetParam(); }
  /// A number per component.
  template <class F>
  static Components each(F of) {
    Components out;
    for (int r = 0; r < replicas(); ++r) out.push_back({static_cast<double>(of(r))});
    return out;
  }
  static Components all(double x) {
    return each([x](int) { return x; });
  }
  Variable variable(Aggregation aggregation, Synchronization synchronization, double x = 1) {
    return make(scalar(x, kFloat64),
                {.name = "v", .synchronization = synchronization, .aggregation = aggregation});
  }
  /// What x_0 .. x_(R-1), each r + 2, become.
  static double aggregated(Aggregation aggregation) {
    const double sum = replicas() * 2 + replicas() * (replicas() - 1) / 2.0;
    if (aggregation == Aggregation::kSum) return sum;
    return aggregation == Aggregation::kMean ? sum / replicas() : 2;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, WriteTable, ::testing::Values(1, 2, 3));

TEST_P(WriteTable, OnWriteCrossReplica) {
  for (const Aggregation aggregation : kAggregations) {
    const Variable v = variable(aggregation, Synchronization::kAuto);
    EXPECT_EQ(v.assign(scalar(5)).item<double>(), 5);
    EXPECT_EQ(v.assign_add(scalar(3, kInt32)).item<double>(), 8);
    EXPECT_EQ(v.assign_sub(0.5).item<double>(), 7.5);
    EXPECT_EQ(components(v), all(7.5));
    std::vector<Tensor> values;
    for (int r = 0; r < replicas(); ++r) values.push_back(scalar(r));
    v.assign_add(PerReplica<Tensor>(values));
    EXPECT_EQ(components(v), each([](int r) { return 7.5 + r; }));
    EXPECT_EQ(v.value().item<double>(), 7.5);
  }
}

TEST_P(WriteTable, OnWriteInReplicas) {
  for (const Aggregation aggregation : kAggregations) {
    const auto after = [&](int steps, auto write) {
      const Variable v = variable(aggregation, Synchronization::kOnWrite);
      for (int i = 0; i < steps; ++i) {
        group_.run([&](int r) {
          const double returned = write(v, scalar(r + 2, kFloat64)).template item<double>();
          EXPECT_EQ(returned, v.value().item<double>());
        });
      }
      return components(v);
    };
    const bool own = aggregation == Aggregation::kNone;
    const double x = aggregated(aggregation);
    const auto expected = [&](auto of) { return each([&](int r) { return of(own ? r + 2 : x); }); };
    EXPECT_EQ(after(1, [](const Variable& v, const Tensor& t) { return v.assign(t); }),
              expected([](double y) { return y; }));
    EXPECT_EQ(after(2, [](const Variable& v, const Tensor& t) { return v.assign_add(t); }),
              expected([](double y) { return 1 + 2 * y; }));
    EXPECT_EQ(after(2, [](const Variable& v, const Tensor& t) { return v.assign_sub(t); }),
              expected([](double y) { return 1 - 2 * y; }));
  }
}

TEST_P(WriteTable, OneObjectOnEveryReplica) {
  const Tensor captured = scalar(0.1, kFloat64);
  for (const Aggregation aggregation : kAggregations) {
    const Variable v = variable(aggregation, Synchronization::kOnWrite, 0);
    const auto number = [&] { group_.run([&](int) { v.assign(0.1); }); };
    const auto same_tensor = [&] { group_.run([&](int) { v.assign(captured); }); };
    if (aggregation == Aggregation::kSum && replicas() > 1) {
      expect_error<InvalidArgument>({"[variable.assign]", label(v.impl()) + " (aggregation sum)",
                                     "the same number on each of"},
                                    number);
      expect_error<InvalidArgument>(
          {"\"v\"", "the same tensor on each of", "pass a tensor made in the replica"},
          same_tensor);
      EXPECT_EQ(components(v), all(0));
      continue;
    }
    number();
    EXPECT_EQ(components(v), all(0.1));  // itself, not a mean that rounds
    v.assign(0.0);
    same_tensor();
    EXPECT_EQ(components(v), all(0.1));
  }
}

TEST_P(WriteTable, NumbersMayDifferWhereTheyHaveAMean) {
  const Variable v = variable(Aggregation::kMean, Synchronization::kOnWrite);
  group_.run([&](int r) { v.assign(r + 2.0); });
  EXPECT_EQ(components(v), all(aggregated(Aggregation::kMean)));
}

TEST_P(WriteTable, ValuesOfAnotherTypeAreConvertedBeforeTheyMeet) {
  const Variable v = variable(Aggregation::kMean, Synchronization::kOnWrite);
  group_.run([&](int r) { v.assign(scalar(r + 2, kInt32)); });
  EXPECT_EQ(components(v), all(aggregated(Aggregation::kMean)));
  const Variable filled = make(zeros({2}), {.aggregation = Aggregation::kSum});
  group_.run([&](int r) { filled.assign(r == 0 ? scalar(1) : tensor({1, 2})); });
  EXPECT_EQ(components(filled)[0], (std::vector<double>{1.0 * replicas(), 2.0 * replicas() - 1}));
}

TEST_P(WriteTable, OnReadInReplicasStaysLocal) {
  for (const Aggregation aggregation : kAggregations) {
    const Variable v = variable(aggregation, kOnRead);
    // No communication: one replica alone may write.
    group_.run([&](int r) {
      if (r > 0) return;
      v.assign(7.0);
      v.assign_add(scalar(2));
      v.assign_sub(1.0);
      EXPECT_EQ(v.value().item<double>(), 8);
    });
    EXPECT_EQ(components(v), each([](int r) { return r == 0 ? 8 : 1; }));
  }
}

TEST_P(WriteTable, OnReadCrossReplica) {
  for (const Aggregation aggregation : kAggregations) {
    const bool sum = aggregation == Aggregation::kSum;
    const Variable v = variable(aggregation, kOnRead);
    v.assign(scalar(6));
    EXPECT_EQ(components(v), all(sum ? 6.0 / replicas() : 6.0));
    const auto add = [&] { v.assign_add(scalar(1)); };
    if (sum && replicas() > 1) {
      expect_error<InvalidArgument>(
          {"[variable.assign_add]", "\"v\"", "summed on read", "add inside strategy.run"}, add);
      EXPECT_THROW(v.assign_sub(1.0), InvalidArgument);
    } else {
      add();
      EXPECT_EQ(components(v), all(7));
    }
    std::vector<Tensor> values;
    for (int r = 0; r < replicas(); ++r) values.push_back(scalar(r + 2));
    v.assign(PerReplica<Tensor>(values));
    EXPECT_EQ(components(v), each([](int r) { return r + 2; }));
    if (aggregation == Aggregation::kNone && replicas() > 1) {
      expect_error<InvalidArgument>({"[variable.value]", "expected an aggregation to read", "\"v\"",
                                     "got none", ".aggregation =", "components()"},
                                    [&] { v.value(); });
    } else {
      EXPECT_EQ(v.value().item<double>(), aggregated(aggregation));
    }
  }
}

TEST_P(WriteTable, SharesAddUpToWhatWasAssigned) {
  const VariableOptions options = {.synchronization = kOnRead, .aggregation = Aggregation::kSum};
  for (const double x : {7.0, -7.0, 1e-45, 0.1, 16777216.0, 0.0}) {
    const Variable v = make(scalar(0), options);
    v.assign(scalar(x));
    EXPECT_EQ(v.value().item<float>(), static_cast<float>(x)) << x;
  }
  const Variable infinite = make(scalar(0), options);
  infinite.assign(std::numeric_limits<double>::infinity());
  EXPECT_EQ(infinite.value().item<float>(), std::numeric_limits<float>::infinity());
  for (const double x : {7.0, -7.0, 2.0, 0.0}) {
    const Variable v = make(scalar(0, kInt32), options);
    v.assign(scalar(x, kInt32));
    EXPECT_EQ(v.value().item<int>(), x);
  }
}

TEST_P(WriteTable, NothingIsWrittenOnAnError) {
  const Variable v = make(tensor({1, 2}), {.name = "v", .aggregation = Aggregation::kSum});
  std::vector<Tensor> values(static_cast<std::size_t>(replicas()), tensor({5, 5}));
  values.back() = tensor({1, 2, 3});
  expect_error<InvalidArgument>({"[variable.assign]", "expected shape [2]", "\"v\"", "got [3]"},
                                [&] { v.assign(PerReplica<Tensor>(values)); });
  values.push_back(tensor({5, 5}));
  expect_error<InvalidArgument>({"values for variable " + label(v.impl())},
                                [&] { v.assign(PerReplica<Tensor>(values)); });
  expect_error<InvalidArgument>({"\"v\"", "an undefined tensor"}, [&] { v.assign(Tensor()); });
  EXPECT_THROW(group_.run([&](int r) {
    v.assign_add(r == replicas() - 1 ? tensor({1, 2, 3}) : tensor({1, 1}));
  }),
               InvalidArgument);
  EXPECT_EQ(v.value().sum().item<float>(), 3);
  for (const auto& component : components(v)) EXPECT_EQ(component, (std::vector<double>{1, 2}));
}

class Strangers : public internal::variables::ReplicasTest {};

TEST_F(Strangers, ReplicasOfAnotherStrategyNeitherReadNorWrite) {
  const Variable v = make(1.0, {.name = "v", .aggregation = Aggregation::kSum});
  const Variable statistics = make(1.0, {.synchronization = kOnRead});
  internal::runtime::ReplicaGroup others{{.replicas = 2}};
  internal::runtime::ReplicaGroup one{{.replicas = 1}};
  for (internal::runtime::ReplicaGroup* group : {&others, &one}) {
    expect_error<FailedPrecondition>({"[variable]", "\"v\"", "the strategy that it was made under",
                                      "another strategy", "pass its value()"},
                                     [&] { group->run([&](int) { v.value(); }); });
    expect_error<FailedPrecondition>({"[variable]", "\"v\"", "another strategy"},
                                     [&] { group->run([&](int) { v.assign(scalar(1)); }); });
    EXPECT_THROW(group->run([&](int) { v.local_tensor(); }), FailedPrecondition);
    EXPECT_THROW(group->run([&](int) { statistics.assign_add(1.0); }), FailedPrecondition);
    EXPECT_THROW(group->run([&](int) {
      v.scatter_add({scalar(1), tensor({0}, kInt64), {}});
    }),
                 FailedPrecondition);
  }
  expect_error<FailedPrecondition>(
      {"[variable]", "\"w\"", "got the scope of", "leave that scope"}, [&] {
        others.run([&](int) {
          const internal::variables::VariableCreatorScope scope(creator_);
          const Variable w(0.0, {.name = "w"});
        });
      });
  EXPECT_EQ(components(v), (Components{{1}, {1}}));
}

TEST_F(Strangers, PlainVariablesAreReadAnywhereAndWrittenAlone) {
  const Variable plain(2.0, {.name = "plain"});
  group_.run([&](int) { EXPECT_EQ((plain * 3).item<float>(), 6); });
  expect_error<FailedPrecondition>(
      {"[variable.assign_add]", "\"plain\"", "made outside of every strategy",
       "2 replicas would write it at once", "inside strategy.scope()"},
      [&] { group_.run([&](int) { plain.assign_add(1.0); }); });
  EXPECT_THROW(group_.run([&](int) {
    plain.scatter_add({scalar(1), tensor({0}, kInt64), {}});
  }),
               FailedPrecondition);
  EXPECT_EQ(plain.value().item<float>(), 2);
  internal::runtime::ReplicaGroup one{{.replicas = 1}};
  one.run([&](int) { plain.assign_add(1.0); });
  EXPECT_EQ(plain.value().item<float>(), 3);
}

TEST_F(Strangers, ReplicasWriteTheSameVariable) {
  const Variable a = make(1.0, {.name = "a", .aggregation = Aggregation::kSum});
  const Variable b = make(1.0, {.name = "b", .aggregation = Aggregation::kSum});
  expect_error<FailedPrecondition>(
      {"[variable.assign]", "expected every replica to write variable " + label(a.impl()) + " here",
       "of " + label(b.impl()) + " on replica 1"},
      [&] { group_.run([&](int r) { (r == 0 ? a : b).assign(scalar(1)); }); });
  // One name for both, as all have that were given none.
  const Variable c = make(1.0, {.name = "a", .aggregation = Aggregation::kSum});
  EXPECT_NE(label(a.impl()), label(c.impl()));
  expect_error<FailedPrecondition>(
      {"write variable " + label(a.impl()), "of " + label(c.impl())},
      [&] { group_.run([&](int r) { (r == 0 ? a : c).assign(scalar(1)); }); });
}

}  // namespace
}  // namespace cohort
