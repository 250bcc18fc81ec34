// SPDX-License-Identifier: Apache-2.0
#include "cohort/values/nest.h"

#include <gtest/gtest.h>

#include <any>
#include <functional>
#include <memory>
#include <sstream>
#include <variant>

namespace cohort {
namespace {

struct Inner {
  Tensor x;
  std::string text;
};
struct Outer {
  int count = 0;
  Inner inner;
  std::array<Inner, 2> pair;
  std::optional<double> extra;
  std::map<std::string, std::vector<int>> table;
  std::tuple<float, std::pair<bool, int64_t>> rest;
};
struct Empty {};
struct Sixteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct Seventeen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
struct Odd {
  std::optional<int> optional_number;
  std::optional<Tensor> optional_tensor;
  std::any anything;
  std::function<void()> function;
  std::variant<int, std::string> variant;
  std::unique_ptr<int> owned;
  std::shared_ptr<int> shared;
  Gradient gradient;
  std::vector<bool> bits;
  double number;
};

// A class with private members that says how to read it.
class Sealed {
 public:
  Sealed(int a, Tensor b) : a_(a), b_(std::move(b)) {}

 private:
  friend struct NestTraits<Sealed>;
  int a_;
  Tensor b_;
};

// A nest whose leaves are known at run time only.
struct Dynamic {
  std::variant<std::vector<Tensor>, std::string> value;
  int not_a_leaf = 7;
};

}  // namespace

template <>
struct NestTraits<Sealed> {
  static auto tie(Sealed& s) { return std::tie(s.a_, s.b_); }
};
template <>
struct NestTraits<Dynamic> {
  template <class U, class F>
  static void for_each_leaf(U& nest, F&& f) {
    if (auto* tensors = std::get_if<0>(&nest.value)) {
      for (auto& t : *tensors) f(t);
    } else {
      f(std::get<1>(nest.value));
    }
  }
};

namespace {

// Every leaf as text, in the order of the walk.
template <class T>
std::string leaves_of(T& nest) {
  std::ostringstream out;
  for_each_leaf(nest, [&]<class L>(L& leaf) {
    if constexpr (std::is_same_v<std::remove_const_t<L>, Tensor>) {
      out << "t" << leaf.template item<double>() << ' ';
    } else if constexpr (std::is_same_v<std::remove_const_t<L>, Gradient> ||
                         std::is_same_v<std::remove_const_t<L>, IndexedSlices>) {
      out << "g ";
    } else {
      out << leaf << ' ';
    }
  });
  return out.str();
}

Outer make_outer() {
  return {.count = 3,
          .inner = {scalar(1), "one"},
          .pair = {Inner{scalar(2), "two"}, Inner{scalar(3), "three"}},
          .extra = 0.5,
          .table = {{"b", {7, 8}}, {"a", {6}}},
          .rest = {1.5F, {true, 9}}};
}

TEST(Nest, CountsMembers) {
  using internal::values::member_count;
  static_assert(member_count<Empty>() == 0);
  static_assert(member_count<Inner>() == 2);
  static_assert(member_count<Outer>() == 6);
  static_assert(member_count<Odd>() == 10);
  static_assert(member_count<Sixteen>() == 16);
  static_assert(internal::values::nest_kind<Seventeen>() == internal::values::NestKind::kNone);
  static_assert(internal::values::nest_kind<IndexedSlices>() == internal::values::NestKind::kLeaf);
  static_assert(internal::values::nest_kind<std::vector<bool>>() ==
                internal::values::NestKind::kNone);
}

TEST(Nest, VisitsLeavesInDeclarationOrder) {
  Outer nest = make_outer();
  EXPECT_EQ(leaves_of(nest), "3 t1 one t2 two t3 three 0.5 6 7 8 1.5 1 9 ");
  const Outer& read_only = nest;
  EXPECT_EQ(leaves_of(read_only), leaves_of(nest));
  nest.extra.reset();
  nest.table.clear();
  EXPECT_EQ(leaves_of(nest), "3 t1 one t2 two t3 three 1.5 1 9 ");
  Sixteen many{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  EXPECT_EQ(leaves_of(many), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 ");
  Empty empty;
  EXPECT_EQ(leaves_of(empty), "");
}

TEST(Nest, SlicesAndGradientsAreLeaves) {
  std::tuple<Gradient, IndexedSlices, Tensor> nest{Gradient(), IndexedSlices(), scalar(4)};
  EXPECT_EQ(leaves_of(nest), "g g t4 ");
  EXPECT_EQ(flatten(nest).size(), 1U);
}

TEST(Nest, LeavesCanBeWritten) {
  Outer nest = make_outer();
  for_each_leaf(nest, [](auto& leaf) {
    using L = std::remove_reference_t<decltype(leaf)>;
    if constexpr (std::is_arithmetic_v<L> && !std::is_same_v<L, bool>) leaf += 1;
  });
  EXPECT_EQ(nest.count, 4);
  EXPECT_EQ(nest.extra, 1.5);
  EXPECT_EQ(nest.table.at("b"), (std::vector<int>{8, 9}));
}

TEST(Nest, TraitsOpenOtherClasses) {
  Sealed sealed(5, scalar(6));
  EXPECT_EQ(leaves_of(sealed), "5 t6 ");
  const Sealed doubled = map_leaves(sealed, [](const auto& leaf) { return leaf + leaf; });
  EXPECT_EQ(leaves_of(doubled), "10 t12 ");
  EXPECT_EQ(leaves_of(sealed), "5 t6 ");

  std::vector<Dynamic> dynamic{{std::vector<Tensor>{scalar(1), scalar(2)}}, {std::string("s")}};
  EXPECT_EQ(leaves_of(dynamic), "t1 t2 s ");
}

TEST(Nest, MapKeepsTheStructureAndSharesUntouchedTensors) {
  const Outer nest = make_outer();
  const Outer out = map_leaves(nest, []<class L>(const L& leaf) {
    if constexpr (std::is_same_v<L, std::string>) {
      return leaf + "!";
    } else {
      return leaf;
    }
  });
  EXPECT_EQ(leaves_of(out), "3 t1 one! t2 two! t3 three! 0.5 6 7 8 1.5 1 9 ");
  EXPECT_TRUE(out.inner.x.is_same(nest.inner.x));
}

TEST(Nest, FlattenGivesTensorsInOrder) {
  const Outer nest = make_outer();
  const std::vector<Tensor> tensors = flatten(nest);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_TRUE(tensors[0].is_same(nest.inner.x));
  EXPECT_TRUE(tensors[2].is_same(nest.pair[1].x));
  EXPECT_EQ(flatten(scalar(1)).size(), 1U);
}

TEST(Nest, SameStructureLooksAtLengthsKeysAndOptionals) {
  using internal::values::same_structure;
  const Outer a = make_outer();
  Outer b = make_outer();
  b.count = 100;
  EXPECT_TRUE(same_structure(a, b));
  b.extra.reset();
  EXPECT_FALSE(same_structure(a, b));
  b = make_outer();
  b.table["b"].push_back(1);
  EXPECT_FALSE(same_structure(a, b));
  b = make_outer();
  b.table.erase("a");
  b.table["c"] = {6};
  EXPECT_FALSE(same_structure(a, b));
  const Dynamic one{std::vector<Tensor>{scalar(1)}};
  EXPECT_TRUE(same_structure(one, Dynamic{std::vector<Tensor>{scalar(2)}}));
  EXPECT_FALSE(same_structure(one, Dynamic{std::vector<Tensor>{scalar(2), scalar(3)}}));
  EXPECT_FALSE(same_structure(one, Dynamic{std::string("s")}));
}

TEST(Nest, CombineMakesOneNestOfSeveral) {
  std::vector<Outer> nests{make_outer(), make_outer(), make_outer()};
  nests[2].count = 10;
  nests[1].inner.text = "second";
  const auto last_or_sum = []<class L>(std::span<const L* const> parts) {
    if constexpr (std::is_same_v<L, std::string>) {
      return *parts[1];
    } else if constexpr (std::is_same_v<L, Tensor>) {
      Tensor sum = *parts[0];
      for (const L* part : parts.subspan(1)) sum = sum + *part;
      return sum;
    } else {
      L sum{};
      for (const L* part : parts) sum = static_cast<L>(sum + *part);
      return sum;
    }
  };
  const Outer out = internal::values::combine_leaves(std::span<const Outer>(nests), last_or_sum);
  EXPECT_EQ(leaves_of(out), "16 t3 second t6 two t9 three 1.5 18 21 24 4.5 1 27 ");

  nests[1].extra.reset();
  EXPECT_THROW(internal::values::combine_leaves(std::span<const Outer>(nests), last_or_sum),
               InvalidArgument);
  EXPECT_THROW(internal::values::combine_leaves(std::span<const Outer>(), last_or_sum),
               InvalidArgument);
}

}  // namespace
}  // namespace cohort
