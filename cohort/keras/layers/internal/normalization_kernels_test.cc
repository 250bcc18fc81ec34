// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation's kernels of each instruction set against sums in float64, and the same bits
// with any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/keras/layers/internal/own_normalization.h"
#include "cohort/keras/layers/internal/test_kernels.h"
#include "cohort/keras/layers/normalization.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/random.h"

namespace cohort::keras::internal {
namespace {

// Rows and columns, in memory of exactly their size.
struct RowsCase {
  RowsCase(int64_t rows, int64_t columns) {
    auto fill = [seed = 1U](std::vector<float>& out, int64_t n, float middle) mutable {
      std::mt19937 random(seed++);
      out.resize(static_cast<std::size_t>(n));
      for (float& v : out) {
        v = middle + static_cast<float>(random() >> 8U) / static_cast<float>(1U << 23U) - 1;
      }
    };
    fill(x, rows * columns, 3);
    fill(g, rows * columns, 0);
    fill(mean, columns, 3);
    fill(scale, columns, 0);
    fill(shift, columns, 0);
    fill(slope, columns, 0);
    fill(offset, columns, 0);
    in = {.x = x.data(),
          .rows = rows,
          .columns = columns,
          .mean = mean.data(),
          .scale = scale.data(),
          .shift = shift.data(),
          .relu = false};
  }
  // As the kernels compute it; whether it is above 0 must not depend on a last bit.
  bool counts(std::size_t i) const {
    const std::size_t k = i % mean.size();
    return !in.relu || std::fma(x[i], scale[k], shift[k]) > 0;
  }
  double gradient(std::size_t i) const { return counts(i) ? double{g[i]} : 0; }

  std::vector<float> x, g, mean, scale, shift, slope, offset;
  NormalizedRows in{};
};

void expect_moments(const KernelsOfIsa& table, const RowsCase& c) {
  const std::size_t columns = c.mean.size();
  std::vector<float> mean(columns), squares(columns);
  table.kernels->moments(c.x.data(), c.in.rows, c.in.columns, mean.data(), squares.data());
  for (std::size_t k = 0; k < columns; ++k) {
    double sum = 0, square = 0;
    for (std::size_t i = k; i < c.x.size(); i += columns) sum += double{c.x[i]};
    sum /= static_cast<double>(c.in.rows);
    for (std::size_t i = k; i < c.x.size(); i += columns)
      square += std::pow(double{c.x[i]} - sum, 2);
    EXPECT_NEAR(mean[k], sum, 1e-5) << table.name;
    EXPECT_NEAR(squares[k], square, 1e-5 * (1 + square)) << table.name;
  }
}

void expect_elements(const KernelsOfIsa& table, const RowsCase& c) {
  const std::size_t columns = c.mean.size();
  std::vector<float> y(c.x.size()), dx = c.g;
  table.kernels->normalize(c.in, y.data());
  table.kernels->normalized_gradient(c.in, dx.data(), {c.slope.data(), c.offset.data()}, dx.data());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t k = i % columns;
    const double value = double{c.x[i]} * double{c.scale[k]} + double{c.shift[k]};
    ASSERT_NEAR(y[i], c.in.relu && value < 0 ? 0 : value, 1e-5) << table.name << " at " << i;
    const double want = c.gradient(i) * double{c.scale[k]} +
                        (double{c.x[i]} - double{c.mean[k]}) * double{c.slope[k]} +
                        double{c.offset[k]};
    ASSERT_NEAR(dx[i], want, 1e-5) << table.name << " at " << i;
  }
}

void expect_sums(const KernelsOfIsa& table, const RowsCase& c) {
  const std::size_t columns = c.mean.size();
  std::vector<float> sum(columns), product(columns);
  table.kernels->normalized_sums(c.in, c.g.data(), sum.data(), product.data());
  for (std::size_t k = 0; k < columns; ++k) {
    double wanted_sum = 0, wanted_product = 0;
    for (std::size_t i = k; i < c.x.size(); i += columns) {
      wanted_sum += c.gradient(i);
      wanted_product += c.gradient(i) * (double{c.x[i]} - double{c.mean[k]});
    }
    EXPECT_NEAR(sum[k], wanted_sum, 1e-4) << table.name;
    EXPECT_NEAR(product[k], wanted_product, 1e-4) << table.name;
  }
}

TEST(NormalizationKernels, ComputeTheFormulas) {
  for (const KernelsOfIsa& table : all_kernels()) {
    for (const int64_t rows : {1, 3, 4, 50}) {
      for (const int64_t columns : {1, 5, 16, 33, 64, 70, 144}) {
        for (const bool relu : {false, true}) {
          RowsCase c(rows, columns);
          c.in.relu = relu;
          expect_moments(table, c);
          expect_elements(table, c);
          expect_sums(table, c);
        }
      }
    }
  }
}

struct Passed {
  Tensor y, variance, dx, dgamma, dbeta;
};

Passed pass(const Tensor& x, const Variable& gamma, const Variable& beta, bool rectified) {
  const Tensor in = x.detach().clone().set_requires_grad(true);
  GradientTape tape({.persistent = true});
  const OwnNormalized out = own_normalization(in, gamma, beta, 1e-3, rectified);
  const Tensor loss = (out.y * out.y * arange(x.size(-1)).to(kFloat32)).sum();
  return {out.y.detach(), out.variance, tape.gradient(loss, in), tape.gradient(loss, gamma),
          tape.gradient(loss, beta)};
}

// Enough rows for several chunks and threads.
TEST(OwnNormalization, IsTheSameBitsWithAnyNumberOfThreads) {
  BatchNormalization layer;
  layer.base().ensure_built({kUnknownDim, 40});
  const Variable gamma = layer.variables()[0], beta = layer.variables()[1];
  const Tensor x = random_normal({90000, 40});
  for (const bool rectified : {false, true}) {
    const auto with = [&](int threads) {
      const cohort::internal::runtime::IntraOpThreads intra_op(threads);
      return pass(x, gamma, beta, rectified);
    };
    const Passed one = with(1);
    for (const int threads : {2, 3}) {
      const Passed more = with(threads);
      EXPECT_TRUE(one.y.equal(more.y));
      EXPECT_TRUE(one.variance.equal(more.variance));
      EXPECT_TRUE(one.dx.equal(more.dx));
      EXPECT_TRUE(one.dgamma.equal(more.dgamma));
      EXPECT_TRUE(one.dbeta.equal(more.dbeta));
    }
  }
}

// A sum of squares less the square of a mean would have no digits left.
TEST(OwnNormalization, KeepsTheVarianceBesideALargeMean) {
  set_seed(1);
  const Tensor x = random_normal({20000, 3}) + 1000;
  const Tensor variance = own_normalization(x, {}, {}, 1e-3, false).variance;
  const Tensor wide = x.to(kFloat64);
  const Tensor want = (wide - wide.mean(0)).square().mean(0);
  EXPECT_TRUE(variance.allclose(want, 1e-5, 0)) << variance << want;
}

}  // namespace
}  // namespace cohort::keras::internal
