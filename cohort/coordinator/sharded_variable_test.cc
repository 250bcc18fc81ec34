// SPDX-License-Identifier: Apache-2.0
#include "cohort/coordinator/sharded_variable.h"

#include <gtest/gtest.h>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/strings.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using Numbers = std::vector<float>;

Variable rows_of(double first, int64_t rows) {
  return Variable((arange(rows * 2).to(kFloat32) + first).reshape({rows, 2}),
                  {.name = first == 0 ? "t/part_0" : "t/part_n"});
}

// 5 rows of 2 numbers, 0 to 9.
ShardedVariable five_rows() {
  return ShardedVariable({rows_of(0, 2), rows_of(4, 2), rows_of(8, 1)});
}

Numbers numbers(const Tensor& t) { return to_vector<float>(t); }

TEST(ShardedVariable, S04_ReadsAndWritesAsOne) {
  const ShardedVariable v = five_rows();
  EXPECT_EQ(v.name(), "t");
  EXPECT_EQ(v.shape(), (Shape{5, 2}));
  EXPECT_EQ(v.variables().size(), 3U);
  EXPECT_EQ(numbers(v), (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  v.assign_add(full({5, 2}, 10));
  EXPECT_EQ(numbers(v.variables()[1]), (Numbers{14, 15, 16, 17}));
  v.assign(3.0);
  EXPECT_EQ(numbers(v), Numbers(10, 3));
  EXPECT_THROW(v.assign(zeros({4, 2})), InvalidArgument);
}

TEST(ShardedVariable, SlicesAsPython) {
  const ShardedVariable v = five_rows();
  EXPECT_EQ(numbers(v[{1}]), (Numbers{2, 3}));
  EXPECT_EQ(numbers(v[{-1}]), (Numbers{8, 9}));
  EXPECT_EQ(shape_of(v[{-1}]), (Shape{2}));
  EXPECT_EQ(numbers(v[{{1, 4, 2}}]), (Numbers{2, 3, 6, 7}));
  EXPECT_EQ(numbers(v[{{std::nullopt, std::nullopt, -2}, 1}]), (Numbers{9, 5, 1}));
  EXPECT_EQ(numbers(v[{Slice::all(), {0, 1}}]), (Numbers{0, 2, 4, 6, 8}));
  EXPECT_EQ(shape_of(v[{{4, 2}}]), (Shape{0, 2}));
  EXPECT_EQ(numbers(v[{3, -1}]), (Numbers{7}));
}

TEST(ShardedVariable, NewAxesAndEllipsis) {
  const ShardedVariable v = five_rows();
  const Slice rest = Slice::ellipsis();
  const Slice added = Slice::new_axis();
  EXPECT_EQ(numbers(v[{rest, 1}]), (Numbers{1, 3, 5, 7, 9}));
  EXPECT_EQ(numbers(v[{2, rest}]), (Numbers{4, 5}));
  EXPECT_EQ(numbers(v[{2, rest, 0}]), (Numbers{4})) << "of no axis";
  EXPECT_EQ(shape_of(v[{2, rest, 0}]), Shape{});
  EXPECT_EQ(shape_of(v[{rest}]), (Shape{5, 2}));
  EXPECT_EQ(shape_of(v[{added}]), (Shape{1, 5, 2}));
  EXPECT_EQ(shape_of(v[{rest, added}]), (Shape{5, 2, 1}));
  EXPECT_EQ(shape_of(v[{{1, 3}, added, added}]), (Shape{2, 1, 1, 2}));
  EXPECT_EQ(shape_of(v[{3, added}]), (Shape{1, 2}));
  EXPECT_EQ(numbers(v[{3, added, 1}]), (Numbers{7}));
  EXPECT_EQ(shape_of(v[{3, added, 1}]), (Shape{1}));
  EXPECT_THROW((v[{rest, 0, rest}]), InvalidArgument);
  EXPECT_THROW((v[{rest, 0, 0, 0}]), InvalidArgument);
}

TEST(ShardedVariable, S07_RefusesWrongIndices) {
  const ShardedVariable v = five_rows();
  for (const int64_t wrong : {5, -6}) {
    testing::expect_error(ErrorCode::kOutOfRange, {str_cat("got ", wrong)}, [&] { v[{wrong}]; });
  }
  EXPECT_THROW((v[{{0, 1, 0}}]), InvalidArgument);
  EXPECT_THROW((v[{0, 0, 0}]), InvalidArgument);
}

TEST(ShardedVariable, S09_RefusesUnlikeShards) {
  EXPECT_THROW(ShardedVariable(std::vector<Variable>{}), InvalidArgument);
  const Variable other(zeros({2, 3}));
  const Variable ints(zeros({2, 2}, kInt64), {.name = "ints"});
  testing::expect_error<InvalidArgument>({"[2, 2]", "[2, 3]"}, [&] {
    ShardedVariable({rows_of(0, 2), other});
  });
  testing::expect_error<InvalidArgument>({"float32", "int64", "\"ints\""}, [&] {
    ShardedVariable({rows_of(0, 2), ints});
  });
  EXPECT_THROW(ShardedVariable(rows_of(0, 2)), InvalidArgument);
}

TEST(ShardedVariable, ScattersToWhereTheRowsAre) {
  const ShardedVariable v = five_rows();
  v.scatter_add({.values = ones({3, 2}), .indices = tensor({4, 0, 4}, kInt64)});
  EXPECT_EQ(numbers(v), (Numbers{1, 2, 2, 3, 4, 5, 6, 7, 10, 11}));
  EXPECT_THROW(v.scatter_add({.values = ones({1, 2}), .indices = tensor({5}, kInt64)}),
               InvalidArgument);
}

// Each verb does with shards what it does with one variable; where rows are named twice, too.
TEST(ShardedVariable, EveryScatterIsThatOfOneVariable) {
  using Verb = void (Variable::*)(const IndexedSlices&) const;
  const std::vector<Verb> verbs = {&Variable::scatter_add,   &Variable::scatter_sub,
                                   &Variable::scatter_mul,   &Variable::scatter_div,
                                   &Variable::scatter_min,   &Variable::scatter_max,
                                   &Variable::scatter_update};
  const IndexedSlices slices{.values = (arange(8).to(kFloat32) * 1.5 - 3.25).reshape({4, 2}),
                             .indices = tensor({4, 0, 3, 4}, kInt64)};
  for (const Verb verb : verbs) {
    const ShardedVariable v = five_rows();
    const Variable whole(v.value().clone());
    (v.*verb)(slices);
    (whole.*verb)(slices);
    EXPECT_EQ(numbers(v), numbers(whole)) << &verb - verbs.data();
    EXPECT_NE(numbers(v), numbers(five_rows())) << &verb - verbs.data();
  }
}

TEST(ShardedVariable, S05_LooksUpInTheOrderOfTheIds) {
  const ShardedVariable v = five_rows();
  const Variable& whole = v;
  EXPECT_EQ(numbers(embedding_lookup(whole, tensor({4, 0, 3, 0}, kInt64))),
            (Numbers{8, 9, 0, 1, 6, 7, 0, 1}));
  GradientTape tape;
  const Tensor loss = embedding_lookup(whole, tensor({4, 0}, kInt64)).sum();
  const Gradients g = tape.gradient(loss, std::span(&whole, 1));
  ASSERT_TRUE(g[0].gradient.is_sparse());
  EXPECT_EQ(to_vector<int64_t>(g[0].gradient.slices().indices), (std::vector<int64_t>{4, 0}));
}

}  // namespace
}  // namespace cohort
