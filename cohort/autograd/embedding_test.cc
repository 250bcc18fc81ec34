// SPDX-License-Identifier: Apache-2.0
//
// Lookups against LibTorch's index_select, whose gradient is dense.
#include "cohort/autograd/embedding.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/local_variables.h"

namespace cohort {
namespace {

using Numbers = std::vector<double>;

Numbers numbers(const Tensor& t) { return to_vector<double>(t); }

Tensor ids(std::initializer_list<double> values, DType dtype = kInt64) {
  return tensor(values, dtype);
}

Variable make_table(VariableOptions options = {}) {
  options.name = "table";
  return Variable(arange(10, kFloat64).view({5, 2}) / 7, options);
}

/// A loss in which every looked-up element counts differently.
Tensor loss_of(const Tensor& rows) {
  return (rows * rows * arange(rows.numel(), kFloat64).view(rows.sizes())).sum();
}

Tensor dense_lookup(const Tensor& table, const Tensor& at) {
  Shape shape = shape_of(at);
  shape.push_back(table.size(1));
  return table.index_select(0, at.reshape({-1})).reshape(shape);
}

TEST(EmbeddingLookup, GivesTheRowsAndTheirGradients) {
  const Variable table = make_table();
  for (const Tensor& at :
       {ids({1}), ids({4, 0, 4, 4}), ids({3, 3}, kInt32), ids({0, 1, 2, 3, 4, 0}).view({2, 3}),
        ids({2, 1, 0, 1}).view({2, 2}).t(), ids({3}).reshape({})}) {
    GradientTape tape({.persistent = true});
    const Tensor rows = embedding_lookup(table, at);
    const Tensor expected = dense_lookup(table, at);
    EXPECT_EQ(shape_of(rows), shape_of(expected));
    EXPECT_EQ(numbers(rows), numbers(expected));
    const Gradients sparse = tape.gradient(loss_of(rows), std::span(&table, 1));
    ASSERT_TRUE(sparse[0].gradient.is_sparse());
    EXPECT_EQ(shape_of(sparse[0].gradient.slices().values), (Shape{at.numel(), 2}));
    EXPECT_EQ(numbers(sparse[0].gradient.slices().indices), numbers(at.reshape({-1})));
    const Gradients dense = tape.gradient(loss_of(expected), std::span(&table, 1));
    ASSERT_FALSE(dense[0].gradient.is_sparse());
    EXPECT_EQ(numbers(sparse[0].gradient.as_tensor()), numbers(dense[0].gradient.dense()));
  }
}

TEST(EmbeddingLookup, OfNoIdsHasNoRows) {
  const Variable table = make_table();
  GradientTape tape;
  const Tensor rows = embedding_lookup(table, empty({3, 0}, kInt64));
  EXPECT_EQ(shape_of(rows), (Shape{3, 0, 2}));
  const Gradients g = tape.gradient(rows.sum(), std::span(&table, 1));
  ASSERT_TRUE(g[0].gradient.is_sparse());
  EXPECT_EQ(numbers(g[0].gradient.as_tensor()), Numbers(10, 0));
}

TEST(EmbeddingLookup, TakesTablesOfAnyRank) {
  const Variable scalars(tensor({1, 2, 3}));
  EXPECT_EQ(numbers(embedding_lookup(scalars, ids({2, 0}))), (Numbers{3, 1}));
  const Variable matrices(arange(12, kFloat32).view({3, 2, 2}));
  GradientTape tape;
  const Tensor rows = embedding_lookup(matrices, ids({2, 2}));
  EXPECT_EQ(shape_of(rows), (Shape{2, 2, 2}));
  const Tensor g = tape.gradient(rows.sum(), matrices);
  EXPECT_EQ(numbers(g), (Numbers{0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2}));
}

TEST(EmbeddingLookup, SeveralLookupsJoinTheirRows) {
  const Variable table = make_table();
  GradientTape tape;
  const Tensor one = embedding_lookup(table, ids({1, 4}));
  const Tensor two = embedding_lookup(table, ids({4}, kInt32));
  // Both get the very same incoming gradient.
  const Tensor sum = one.sum(0) + two.sum(0);
  const Gradients g = tape.gradient((sum * 3).sum(), std::span(&table, 1));
  ASSERT_TRUE(g[0].gradient.is_sparse());
  EXPECT_EQ(g[0].gradient.slices().indices.numel(), 3);
  EXPECT_EQ(numbers(g[0].gradient.as_tensor()), (Numbers{0, 0, 3, 3, 0, 0, 0, 0, 6, 6}));
}

TEST(EmbeddingLookup, WithADenseUseTheGradientIsDense) {
  for (const bool lookup_first : {true, false}) {
    const Variable table = make_table();
    GradientTape tape;
    Tensor loss = lookup_first ? embedding_lookup(table, ids({1, 1})).sum() : (table * 10).sum();
    loss = loss + (lookup_first ? (table * 10).sum() : embedding_lookup(table, ids({1, 1})).sum());
    const Gradients g = tape.gradient(loss, std::span(&table, 1));
    ASSERT_FALSE(g[0].gradient.is_sparse());
    EXPECT_EQ(numbers(g[0].gradient.dense()), (Numbers{10, 10, 12, 12, 10, 10, 10, 10, 10, 10}));
  }
}

TEST(EmbeddingLookup, RowsAreNobodyElses) {
  const std::vector<Variable> tables = {make_table(), make_table()};
  GradientTape tape;
  const Tensor sum = embedding_lookup(tables[0], ids({1})) + embedding_lookup(tables[1], ids({1}));
  Gradients g = tape.gradient((sum * 3).sum(), tables);
  g = clip_by_global_norm(std::move(g), 3);  // in place, from a joint norm of 6
  for (const GradientAndVariable& pair : g) {
    for (const double x : numbers(pair.gradient.slices().values)) EXPECT_NEAR(x, 1.5, 1e-12);
  }
}

TEST(EmbeddingLookup, OnlyWhatIsAskedForAndConnected) {
  const Variable frozen = make_table({.trainable = false});
  const std::vector<Variable> tables = {make_table(), make_table()};
  GradientTape tape({.persistent = true});
  const Tensor rows = embedding_lookup(frozen, ids({1})) + embedding_lookup(tables[0], ids({2}));
  const Gradients both = tape.gradient(rows.sum(), tables);
  EXPECT_TRUE(both[0].gradient.is_sparse());
  EXPECT_FALSE(both[1].gradient.has_value());
  EXPECT_FALSE(tape.gradient(rows.sum(), std::span(&tables[1], 1))[0].gradient.has_value());
  EXPECT_FALSE(embedding_lookup(frozen, ids({1})).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(embedding_lookup(tables[0], ids({1})).requires_grad());
}

TEST(EmbeddingLookup, WithoutATapeGradientsAreDense) {
  const at::AutoGradMode on(true);
  const Variable table = make_table();
  embedding_lookup(table, ids({3, 3})).sum().backward();
  EXPECT_EQ(numbers(table.grad()), (Numbers{0, 0, 0, 0, 0, 0, 2, 2, 0, 0}));
}

TEST(EmbeddingLookup, HasDerivativesOfAnyOrder) {
  const Variable table = make_table();
  const auto second = [&](auto lookup) {
    GradientTape outer;
    Tensor first;
    {
      GradientTape inner;
      const Tensor rows = lookup();
      first = inner.gradient((rows * rows * rows).sum(), table);
    }
    return numbers(outer.gradient((first * first).sum(), table));
  };
  const Tensor at = ids({4, 0, 4});
  EXPECT_EQ(second([&] { return embedding_lookup(table, at); }),
            second([&] { return dense_lookup(table, at); }));
}

TEST(EmbeddingLookup, NamesTheTableThatHasNoSuchRow) {
  const Variable table = make_table();
  for (const auto& [at, part] : {std::pair{ids({0, 5}), "got 5"}, std::pair{ids({-1}), "got -1"},
                                 std::pair{ids({1}, kFloat32), "got float32"}}) {
    const Tensor& wrong = at;  // clang 14 captures no structured binding
    testing::expect_error<InvalidArgument>({"[embedding_lookup]", "\"table\"", part},
                                           [&] { embedding_lookup(table, wrong); });
  }
}

TEST(EmbeddingLookup, ChangedIdsAreLibTorchsError) {
  const Variable table = make_table();
  Tensor at = ids({0, 1});
  GradientTape tape;
  const Tensor rows = embedding_lookup(table, at);
  at.fill_(3);
  EXPECT_THROW(tape.gradient(rows.sum(), table), std::exception);
}

// Two replicas of one half each train as one replica of everything.
TEST(EmbeddingLookup, TrainsOnReplicasAsOnOne) {
  const Tensor all = ids({1, 4, 4, 0, 2, 4});
  const auto train = [&](int replicas) {
    internal::runtime::ReplicaGroup group({.replicas = replicas});
    internal::variables::LocalVariablesOptions options{.devices = {}, .group = &group};
    for (int r = 0; r < replicas; ++r) options.devices.emplace_back(str_cat("CPU:", r));
    const auto creator = std::make_shared<internal::variables::LocalVariables>(options);
    const internal::variables::VariableCreatorScope scope(creator);
    const Variable table = make_table();
    internal::variables::FusedUpdate update({table});
    for (int step = 0; step < 3; ++step) {
      group.run([&](int r) {
        const Tensor mine = all.narrow(0, r * 6 / replicas, 6 / replicas);
        GradientTape tape;
        const Tensor rows = embedding_lookup(table, mine);
        const Gradients g = tape.gradient((rows * rows).sum(), std::span(&table, 1));
        EXPECT_TRUE(g[0].gradient.is_sparse());
        update.apply(g, update_rules::SgdStep{.learning_rate = 0.125});
      });
    }
    const auto parts = table.components();
    for (const Variable& part : parts) EXPECT_EQ(numbers(part.value()), numbers(parts[0].value()));
    return numbers(table.value());
  };
  const Numbers one = train(1);
  const Numbers two = train(2);
  EXPECT_NE(one, numbers(make_table().value()));
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-12) << i;
}

}  // namespace
}  // namespace cohort
