// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/regroup.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using internal::runtime::ReplicaScope;
using internal::values::holds_distributed;
using internal::values::unwrap;
using testing::error_text;

template <class X, class Y = X>
struct Batch {
  X x;
  std::vector<Y> more;
  double weight = 1;
};
struct Fixed {
  PerReplica<int> x;
  int scale = 0;
};

TEST(Unwrap, GivesEachReplicaItsComponent) {
  const PerReplica<Tensor> p({scalar(1), scalar(2)});
  const Mirrored<int> m({7});
  const Mirrored<int> copies({7, 8});
  ReplicaScope scope(nullptr, 1, 2);
  static_assert(std::is_same_v<decltype(unwrap(p, 1)), const Tensor&>);
  EXPECT_EQ(&unwrap(p, 1), &p[1]);
  EXPECT_EQ(unwrap(m, 1), 7);
  EXPECT_EQ(unwrap(copies, 1), 8);
}

TEST(Unwrap, LooksIntoTuplesAndPairs) {
  const PerReplica<Tensor> p({scalar(1), scalar(2)});
  const PerReplica<std::string> s(std::vector<std::string>{"a", "b"});
  const std::tuple<PerReplica<Tensor>, int, std::pair<PerReplica<std::string>, bool>> mixed{
      p, 5, {s, true}};
  ReplicaScope scope(nullptr, 1, 2);
  const std::tuple<Tensor, int, std::pair<std::string, bool>> got = unwrap(mixed, 1);
  static_assert(std::is_same_v<decltype(unwrap(mixed, 1)),
                               std::tuple<Tensor, int, std::pair<std::string, bool>>>);
  EXPECT_TRUE(std::get<0>(got).is_same(p[1]));
  EXPECT_EQ(std::get<1>(got), 5);
  EXPECT_EQ(std::get<2>(got).first, "b");
  const std::tuple<int, std::string> plain{1, "x"};
  static_assert(std::is_same_v<decltype(unwrap(plain, 1)), const std::tuple<int, std::string>&>);
  EXPECT_EQ(&unwrap(plain, 1), &plain);
}

TEST(Unwrap, RefusesAnotherNumberOfValues) {
  const PerReplica<int> three({1, 2, 3});
  const std::tuple<int, PerReplica<int>> inside{0, three};
  ReplicaScope scope(nullptr, 0, 2);
  EXPECT_EQ(error_text([&] { unwrap(three, 0); }), "[strategy.run] expected 2 values, got 3");
  EXPECT_THROW(unwrap(three, 0), InvalidArgument);
  EXPECT_THROW(unwrap(inside, 0), InvalidArgument);
  EXPECT_THROW(unwrap(PerReplica<int>({1}), 0), InvalidArgument);
  EXPECT_THROW(unwrap(Mirrored<int>({1, 2, 3}), 0), InvalidArgument);
  EXPECT_THROW(unwrap(Mirrored<int>(), 0), InvalidArgument);
}

TEST(Unwrap, LooksIntoContainers) {
  const PerReplica<int> p({1, 2});
  const Mirrored<std::string> m({"a", "b"});
  ReplicaScope scope(nullptr, 1, 2);
  const std::vector<PerReplica<int>> list{p, PerReplica<int>({3, 4})};
  EXPECT_EQ(unwrap(list, 1), (std::vector<int>{2, 4}));
  const std::map<std::string, Mirrored<std::string>> map{{"k", m}};
  EXPECT_EQ(unwrap(map, 1), (std::map<std::string, std::string>{{"k", "b"}}));
  const std::optional<PerReplica<int>> some = p;
  EXPECT_EQ(unwrap(some, 1), std::optional<int>(2));
  EXPECT_EQ(unwrap(std::optional<PerReplica<int>>(), 1), std::nullopt);
  const std::array<PerReplica<int>, 2> array{p, p};
  EXPECT_EQ(unwrap(array, 1), (std::array<int, 2>{2, 2}));
  const std::map<std::string, std::vector<std::pair<int, PerReplica<int>>>> deep{{"k", {{9, p}}}};
  const std::map<std::string, std::vector<std::pair<int, int>>> got = unwrap(deep, 1);
  EXPECT_EQ(got.at("k")[0], std::pair(9, 2));
}

TEST(Unwrap, RemakesAggregateTemplates) {
  const PerReplica<int> p({1, 2});
  const Batch<PerReplica<int>, Mirrored<int>> all{p, {Mirrored<int>({7})}, 0.5};
  ReplicaScope scope(nullptr, 1, 2);
  const Batch<int> mine = unwrap(all, 1);
  EXPECT_EQ(mine.x, 2);
  EXPECT_EQ(mine.more, std::vector<int>{7});
  EXPECT_EQ(mine.weight, 0.5);
}

TEST(Unwrap, LeavesOtherAggregatesWhoseMembersReadAsTheOwnValue) {
  const Fixed fixed{PerReplica<int>({1, 2}), 3};
  static_assert(!holds_distributed<Fixed>());
  ReplicaScope scope(nullptr, 1, 2);
  EXPECT_EQ(&unwrap(fixed, 1), &fixed);
  EXPECT_EQ(fixed.x * unwrap(fixed, 1).scale, 6);
}

TEST(Unwrap, RefusesAnotherNumberOfValuesInsideAnything) {
  ReplicaScope scope(nullptr, 0, 2);
  const std::vector<PerReplica<int>> list{PerReplica<int>({1, 2, 3})};
  EXPECT_EQ(error_text([&] { unwrap(list, 0); }), "[strategy.run] expected 2 values, got 3");
  const std::map<std::string, std::optional<PerReplica<int>>> map{{"k", PerReplica<int>({1})}};
  EXPECT_THROW(unwrap(map, 0), InvalidArgument);
}

}  // namespace
}  // namespace cohort
