// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/per_replica.h"

#include <gtest/gtest.h>

#include <any>
#include <functional>
#include <list>
#include <string>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using internal::runtime::ReplicaScope;
using testing::error_text;

struct Out {
  Tensor loss;
  int count = 0;
};
struct Derived : Out {
  int more = 0;
};
struct NoEquality {
  std::function<void()> f;
};

TEST(PerReplica, HoldsOneValueForEachReplica) {
  const PerReplica<int> p({3, 4});
  EXPECT_EQ(p.size(), 2U);
  EXPECT_EQ(p[0], 3);
  EXPECT_EQ(std::vector<int>(p.begin(), p.end()), (std::vector<int>{3, 4}));
  EXPECT_EQ(error_text([&] { return p[2]; }),
            "[per_replica] expected a local replica in [0, 2), got 2");
  const PerReplica<int> copy = p;
  EXPECT_EQ(&copy[0], &p[0]);
}

TEST(PerReplica, HoldsBools) {
  const PerReplica<bool> p({true, false});
  const bool& second = p[1];
  EXPECT_TRUE(p[0]);
  EXPECT_FALSE(second);
  EXPECT_EQ(std::vector<bool>(p.begin(), p.end()), (std::vector<bool>{true, false}));
  EXPECT_FALSE(p.uniform());
  EXPECT_TRUE(PerReplica<bool>({true, true}));
  const PerReplica<bool> negated = p.map([](bool b) { return !b; });
  EXPECT_TRUE(negated[1]);
  ReplicaScope scope(nullptr, 1, 2);
  EXPECT_FALSE(p.local());
}

TEST(PerReplica, EmptyHasNoValue) {
  const PerReplica<int> empty;
  EXPECT_EQ(empty.size(), 0U);
  EXPECT_EQ(empty.begin(), empty.end());
  EXPECT_FALSE(empty.uniform());
  EXPECT_THROW(empty.local(), FailedPrecondition);
  EXPECT_THROW(empty[0], Error);
}

TEST(PerReplica, UniformMeansOneObject) {
  const Tensor t = tensor({1, 2});
  EXPECT_TRUE(PerReplica<Tensor>({t, t}).uniform());
  EXPECT_FALSE(PerReplica<Tensor>({t, tensor({1, 2})}).uniform());
  EXPECT_TRUE(PerReplica<int>({5, 5, 5}).uniform());
  EXPECT_FALSE(PerReplica<int>({5, 5, 6}).uniform());
  EXPECT_TRUE(PerReplica<std::string>(std::vector<std::string>{"a", "a"}).uniform());
  EXPECT_TRUE(PerReplica<Out>({{t, 1}, {t, 1}}).uniform());
  EXPECT_FALSE(PerReplica<Out>({{t, 1}, {t, 2}}).uniform());
  EXPECT_TRUE((PerReplica<std::vector<Tensor>>({{t, t}, {t, t}}).uniform()));
  EXPECT_FALSE((PerReplica<std::vector<Tensor>>({{t, t}, {t}}).uniform()));
  EXPECT_TRUE(PerReplica<Gradient>({Gradient(t), Gradient(t)}).uniform());
  const IndexedSlices rows{.values = t, .indices = t, .dense_shape = {4}};
  EXPECT_TRUE(PerReplica<IndexedSlices>({rows, rows}).uniform());
  EXPECT_TRUE((PerReplica<std::optional<int>>({{}, {}}).uniform()));
}

TEST(PerReplica, WithoutEqualityNothingIsUniform) {
  EXPECT_TRUE(PerReplica<NoEquality>(std::vector<NoEquality>(1)).uniform());
  EXPECT_FALSE(PerReplica<NoEquality>(std::vector<NoEquality>(2)).uniform());
  EXPECT_FALSE(PerReplica<std::any>(std::vector<std::any>(2)).uniform());
  EXPECT_FALSE((PerReplica<std::list<Tensor>>({{}, {}}).uniform()));
  EXPECT_FALSE((PerReplica<std::map<int, Tensor>>({{}, {}}).uniform()));
  EXPECT_TRUE((PerReplica<std::map<int, int>>({{{1, 2}}, {{1, 2}}}).uniform()));
  EXPECT_TRUE((PerReplica<std::vector<bool>>({{true}, {true}}).uniform()));
}

TEST(PerReplica, LocalIsTheReplicasComponent) {
  const PerReplica<int> p({10, 20});
  for (int replica : {0, 1}) {
    ReplicaScope scope(nullptr, replica, 2);
    EXPECT_EQ(p.local(), 10 * (replica + 1));
    const int value = p;
    EXPECT_EQ(value, 10 * (replica + 1));
  }
  ReplicaScope scope(nullptr, 1, 3);
  EXPECT_EQ(error_text([&] { p.local(); }), "[per_replica] expected 3 values, got 2");
  EXPECT_THROW(p.local(), InvalidArgument);
}

TEST(PerReplica, LocalInCrossReplicaContextNeedsOneValue) {
  EXPECT_EQ(PerReplica<int>({7}).local(), 7);
  EXPECT_EQ(PerReplica<int>({7, 7}).local(), 7);
  const PerReplica<Tensor> two({scalar(1), scalar(1)});
  EXPECT_THROW(two.local(), FailedPrecondition);
  const std::string text = error_text([&] { two.local(); });
  for (const char* word : {"2 different ones", "reduce", "gather", "local_results"}) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  // A merge function runs in cross-replica context, on a replica's thread.
  ReplicaScope replica(nullptr, 1, 2);
  ReplicaScope cross(nullptr, -1, 2);
  EXPECT_THROW(two.local(), FailedPrecondition);
}

TEST(PerReplica, ReadsAsTensor) {
  const PerReplica<Tensor> p({tensor({1, 2})});
  const Tensor& plain = p;
  EXPECT_TRUE(plain.is_same(p[0]));
  EXPECT_EQ(to_vector<float>(p * 3), (std::vector<float>{3, 6}));
  const PerReplica<Tensor> two({tensor({1}), tensor({2})});
  ReplicaScope scope(nullptr, 1, 2);
  EXPECT_EQ(to_vector<float>(10 - two), (std::vector<float>{8}));
  static_assert(!ReadsAsTensor<PerReplica<int>>);
}

TEST(PerReplica, GetProjectsAField) {
  const PerReplica<Out> p({{scalar(1), 4}, {scalar(2), 5}});
  const PerReplica<Tensor> loss = p.get(&Out::loss);
  EXPECT_TRUE(loss[1].is_same(p[1].loss));
  EXPECT_EQ(p.get(&Out::count)[0], 4);
  const PerReplica<Derived> d({Derived{{scalar(1), 6}, 0}});
  EXPECT_EQ(d.get(&Out::count)[0], 6);
}

TEST(PerReplica, MapAppliesToEveryComponent) {
  const PerReplica<int> p({1, 2, 3});
  const PerReplica<std::string> text = p.map([](int i) { return std::to_string(i); });
  EXPECT_EQ(text[2], "3");
  const std::vector<int> table{5, 6, 7, 8};
  static_assert(std::is_same_v<decltype(p.map([&](int i) -> const int& { return table[i]; })),
                               PerReplica<int>>);
}

TEST(PerReplica, TuplesAndPairsUnzip) {
  const PerReplica<std::tuple<int, std::string, bool>> p({{1, "a", true}, {2, "b", false}});
  const auto [number, text, flag] = p;
  static_assert(std::is_same_v<decltype(number), const PerReplica<int>>);
  static_assert(std::is_same_v<decltype(flag), const PerReplica<bool>>);
  EXPECT_EQ(number[1], 2);
  EXPECT_EQ(text[0], "a");
  EXPECT_FALSE(flag[1]);
  EXPECT_EQ(get<1>(p)[1], "b");
  auto [first, second] = PerReplica<std::pair<int, double>>({{1, 0.5}});
  EXPECT_EQ(first[0], 1);
  EXPECT_EQ(second.local(), 0.5);
}

TEST(Mirrored, ReadsAnywhere) {
  const Mirrored<int> m({1, 2});
  EXPECT_EQ(m.size(), 2U);
  EXPECT_EQ(m.local(), 1);
  EXPECT_EQ(m[1], 2);
  EXPECT_THROW(m[2], Error);
  EXPECT_THROW(Mirrored<int>().local(), FailedPrecondition);
  const Mirrored<Tensor> t({scalar(4)});
  EXPECT_EQ((t + 1).item<float>(), 5);
  ReplicaScope scope(nullptr, 1, 2);
  EXPECT_EQ(m.local(), 2);
  const Tensor& one_for_all = t;
  EXPECT_TRUE(one_for_all.is_same(t[0]));
  EXPECT_THROW(Mirrored<int>({1, 2, 3}).local(), InvalidArgument);
}

// What a temporary hands out is a value, which a reference keeps alive.
static_assert(std::is_same_v<decltype(std::declval<PerReplica<Tensor>>().local()), Tensor>);
static_assert(std::is_same_v<decltype(std::declval<const PerReplica<Tensor>>().local()), Tensor>);
static_assert(std::is_same_v<decltype(std::declval<PerReplica<Tensor>&>().local()), const Tensor&>);
static_assert(std::is_same_v<decltype(std::declval<PerReplica<Tensor>>()[0]), Tensor>);
static_assert(std::is_same_v<decltype(std::declval<Mirrored<Tensor>>().local()), Tensor>);
static_assert(std::is_same_v<decltype(std::declval<Mirrored<Tensor>&>().local()), const Tensor&>);
static_assert(std::is_same_v<decltype(std::declval<Mirrored<Tensor>>()[0]), Tensor>);
static_assert(std::is_same_v<decltype(std::declval<Gradient>().dense()), Tensor>);
static_assert(std::is_same_v<decltype(std::declval<Gradient>().slices()), IndexedSlices>);
template <class Values>
concept ConvertsToReference = requires(Values values) {
  std::forward<Values>(values).operator const Tensor&();
};
static_assert(!ConvertsToReference<PerReplica<Tensor>>);
static_assert(!ConvertsToReference<Mirrored<Tensor>>);

TEST(PerReplica, OutlivesItselfInAReference) {
  const auto make = [] { return PerReplica<std::string>({std::string(100, 'a')}); };
  const auto copies = [] { return Mirrored<std::string>({std::string(100, 'b')}); };
  const std::string& converted = make();
  const auto& local = make().local();
  const std::string& mirrored = copies();
  EXPECT_EQ(converted, std::string(100, 'a'));
  EXPECT_EQ(local, std::string(100, 'a'));
  EXPECT_EQ(mirrored, std::string(100, 'b'));
}

}  // namespace
}  // namespace cohort
