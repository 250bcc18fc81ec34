// SPDX-License-Identifier: Apache-2.0
//
// Against TensorFlow's formulas, one example after the other.
#include "cohort/autograd/embedding_sparse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/testing/expect_error.h"

namespace cohort {
namespace {

using Doubles = std::vector<double>;

Doubles doubles(const Tensor& t) { return to_vector<double>(t); }

// Rows {0, 1}, {2, 3}, ..., {8, 9}.
Variable ten_numbers() { return Variable(arange(10, kFloat64).view({5, 2}), {.name = "table"}); }

// Of the documentation of tf.nn.safe_embedding_lookup_sparse: [0, 0]: id 1, weight 2; [0, 1]: id 3,
// weight 0.5; [1, 0]: id -1, weight 1; [2, 3]: id 1, weight 3.
SparseIds ids_of_the_documentation() {
  return {.indices = tensor({0, 0, 0, 1, 1, 0, 2, 3}, kInt64).reshape({4, 2}),
          .values = tensor({1, 3, -1, 1}, kInt64),
          .dense_shape = {3, 4}};
}
Tensor weights_of_the_documentation() { return tensor({2, 0.5, 1, 3}, kFloat64); }

TEST(SparseLookup, IsThatOfTheDocumentation) {
  const Tensor out =
      safe_embedding_lookup_sparse(ten_numbers(), ids_of_the_documentation(),
                                   {.weights = weights_of_the_documentation(), .default_id = 0});
  EXPECT_EQ(shape_of(out), (Shape{3, 2}));
  EXPECT_EQ(doubles(out), (Doubles{(2 * 2 + 6 * 0.5) / 2.5, (3 * 2 + 7 * 0.5) / 2.5, 0, 1, 2, 3}));
}

TEST(SparseLookup, CombinesAsItIsTold) {
  const double root = std::sqrt(4 + 0.25);
  for (const auto& [combiner, expected] :
       {std::pair(EmbeddingCombiner::kSum, Doubles{7, 9.5, 0, 0, 6, 9}),
        std::pair(EmbeddingCombiner::kMean, Doubles{7 / 2.5, 9.5 / 2.5, 0, 0, 2, 3}),
        std::pair(EmbeddingCombiner::kSqrtN, Doubles{7 / root, 9.5 / root, 0, 0, 2, 3})}) {
    EXPECT_EQ(doubles(safe_embedding_lookup_sparse(
                  ten_numbers(), ids_of_the_documentation(),
                  {.weights = weights_of_the_documentation(), .combiner = combiner})),
              expected);
  }
  // Without weights.
  EXPECT_EQ(doubles(safe_embedding_lookup_sparse(ten_numbers(), ids_of_the_documentation())),
            (Doubles{4, 5, 0, 0, 2, 3}));
}

// What has no weight counts in sums alone, where it adds what it has.
TEST(SparseLookup, WeightsThatAreNotAboveZeroDoNotCountButInSums) {
  const Tensor weights = tensor({-1, 2, 1, 0}, kFloat64);
  EXPECT_EQ(doubles(safe_embedding_lookup_sparse(ten_numbers(), ids_of_the_documentation(),
                                                 {.weights = weights, .default_id = 4})),
            (Doubles{6, 7, 8, 9, 8, 9}));
  EXPECT_EQ(doubles(safe_embedding_lookup_sparse(
                ten_numbers(), ids_of_the_documentation(),
                {.weights = weights, .combiner = EmbeddingCombiner::kSum})),
            (Doubles{12 - 2, 14 - 3, 0, 0, 0, 0}));
}

TEST(SparseLookup, ShortensRowsFirst) {
  const SparseIds ids{.indices = tensor({0, 0, 0, 1}, kInt64).reshape({2, 2}),
                      .values = tensor({0, 1}, kInt32),
                      .dense_shape = {1, 2}};
  const double norm = std::sqrt(13);
  const Doubles out = doubles(safe_embedding_lookup_sparse(
      ten_numbers(), ids, {.combiner = EmbeddingCombiner::kSum, .max_norm = 2}));
  EXPECT_DOUBLE_EQ(out[0], 2 * 2 / norm);
  EXPECT_DOUBLE_EQ(out[1], 1 + 3 * 2 / norm);
}

TEST(SparseLookup, HasAsManyAxesAsTheIds) {
  const SparseIds cube{.indices = tensor({0, 1, 2, 1, 0, 0}, kInt64).reshape({2, 3}),
                       .values = tensor({4, 2}, kInt64),
                       .dense_shape = {2, 2, 3}};
  const Tensor out = safe_embedding_lookup_sparse(ten_numbers(), cube);
  EXPECT_EQ(shape_of(out), (Shape{2, 2, 2}));
  EXPECT_EQ(doubles(out), (Doubles{0, 0, 8, 9, 4, 5, 0, 0}));
  const SparseIds line{.indices = tensor({1}, kInt64).reshape({1, 1}),
                       .values = tensor({3}, kInt64),
                       .dense_shape = {2}};
  EXPECT_EQ(shape_of(safe_embedding_lookup_sparse(ten_numbers(), line)), (Shape{2}));
  const SparseIds none{
      .indices = zeros({0, 2}, kInt64), .values = zeros({0}, kInt64), .dense_shape = {2, 3}};
  EXPECT_EQ(doubles(safe_embedding_lookup_sparse(ten_numbers(), none, {.max_norm = 1})),
            Doubles(4, 0));
}

// Each row gets its share of its example's gradient; rows that nobody has named get none.
TEST(SparseLookup, GivesTheRowsTheirGradients) {
  const Variable table = ten_numbers();
  GradientTape tape;
  const Tensor out = safe_embedding_lookup_sparse(table, ids_of_the_documentation(),
                                                  {.weights = weights_of_the_documentation()});
  const Gradients g = tape.gradient((out * tensor({1, 10, 100}, kFloat64).reshape({3, 1})).sum(),
                                    std::span(&table, 1));
  ASSERT_TRUE(g[0].gradient.is_sparse());
  const double one = 2 / 2.5 + 100;
  EXPECT_EQ(doubles(g[0].gradient.as_tensor()),
            (Doubles{0, 0, one, one, 0, 0, 0.5 / 2.5, 0.5 / 2.5, 0, 0}));
}

TEST(SparseLookup, RefusesWhatItCannotRead) {
  const Variable table = ten_numbers();
  const auto with = [&table](const std::function<void(SparseIds&)>& change,
                             const SparseLookupOptions& options = {}) {
    return [=] {
      SparseIds ids = ids_of_the_documentation();
      change(ids);
      safe_embedding_lookup_sparse(table, ids, options);
    };
  };
  using testing::expect_error;
  expect_error<InvalidArgument>(
      {"axis 1", "got 4"}, with([](SparseIds& ids) {
        ids.indices = tensor({0, 4, 0, 1, 1, 0, 2, 3}, kInt64).reshape({4, 2});
      }));
  expect_error<InvalidArgument>({"indices", "[4, 2]", "[8]"}, with([](SparseIds& ids) {
                                  ids.indices = ids.indices.reshape({-1});
                                }));
  expect_error<InvalidArgument>({"values", "float64"},
                                with([](SparseIds& ids) { ids.values = ids.values.to(kFloat64); }));
  expect_error<InvalidArgument>({"\"table\"", "5"}, with([](SparseIds& ids) {
                                  ids.values = tensor({1, 5, 1, 1}, kInt64);
                                }));
  expect_error<InvalidArgument>({"weight for each id", "[4]", "[3]"},
                                with([](SparseIds&) {}, {.weights = ones({3}, kFloat64)}));
}

}  // namespace
}  // namespace cohort
