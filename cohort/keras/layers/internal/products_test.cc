// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/products.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cohort/keras/layers/internal/test_kernels.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::keras::internal {
namespace {

using cohort::internal::runtime::IntraOpThreads;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Sizes {
  int64_t rows, depth, columns;
};

// Around the edges of vectors, tiles, panels and blocks.
const std::vector<Sizes> kSizes = {
    {1, 1, 1},    {1, 7, 10},   {7, 1, 17},    {5, 3, 100},    {13, 17, 16},  {6, 256, 64},
    {12, 64, 48}, {49, 33, 65}, {97, 257, 10}, {100, 300, 31}, {11, 520, 70}, {481, 9, 130},
};

enum class Kind { kPlain, kLeftTransposed, kRightTransposed };

std::vector<float> numbers(int64_t count, int seed) {
  std::vector<float> out(static_cast<std::size_t>(count));
  unsigned state = static_cast<unsigned>(seed);
  for (float& v : out) {
    state = state * 1664525U + 1013904223U;
    v = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1;
  }
  return out;
}

// A product in memory of exactly its size, so that AddressSanitizer sees an element too many.
struct Case {
  Case(const Sizes& sizes, Kind kind)
      : a(numbers(sizes.rows * sizes.depth, 1)),
        b(numbers(sizes.depth * sizes.columns, 2)),
        bias(numbers(sizes.columns, 3)),
        out(numbers(sizes.rows * sizes.columns, 4)) {
    const bool left = kind == Kind::kLeftTransposed, right = kind == Kind::kRightTransposed;
    p.a_row = left ? 1 : sizes.depth;
    p.a_column = left ? sizes.rows : 1;
    p.b_row = right ? 1 : sizes.columns;
    p.b_column = right ? sizes.depth : 1;
    p.out_row = sizes.columns;
    p.rows = sizes.rows;
    p.depth = sizes.depth;
    p.columns = sizes.columns;
  }
  Product product() {
    Product whole = p;
    whole.a = a.data();
    whole.b = b.data();
    whole.out = out.data();
    return whole;
  }
  double expected(const std::vector<float>& before, int64_t i, int64_t j) const {
    const auto index = [](int64_t n) { return static_cast<std::size_t>(n); };
    double sum = p.accumulate ? before[index(i * p.columns + j)] : 0;
    for (int64_t k = 0; k < p.depth; ++k) {
      sum += double{a[index(i * p.a_row + k * p.a_column)]} *
             double{b[index(k * p.b_row + j * p.b_column)]};
    }
    if (p.bias != nullptr) sum += bias[index(j)];
    return p.relu && sum < 0 ? 0 : sum;
  }

  std::vector<float> a, b, bias, out;
  Product p{};
};

void check(const KernelsOfIsa& table, const Sizes& sizes, Kind kind, bool ends, bool accumulate) {
  Case c(sizes, kind);
  if (ends) c.p.bias = c.bias.data();
  c.p.relu = ends;
  c.p.accumulate = accumulate;
  const std::vector<float> before = c.out;
  table.kernels->product(c.product());
  for (int64_t i = 0; i < sizes.rows; ++i) {
    for (int64_t j = 0; j < sizes.columns; ++j) {
      ASSERT_NEAR(c.out[static_cast<std::size_t>(i * sizes.columns + j)], c.expected(before, i, j),
                  1e-6 * static_cast<double>(sizes.depth + 4))
          << table.name << ", " << sizes.rows << " x " << sizes.depth << " x " << sizes.columns
          << ", kind " << static_cast<int>(kind) << ", at " << i << ", " << j;
    }
  }
}

TEST(Products, AreRightAtAnySize) {
  for (const KernelsOfIsa& table : all_kernels()) {
    for (const Sizes& sizes : kSizes) {
      for (const Kind kind : {Kind::kPlain, Kind::kLeftTransposed, Kind::kRightTransposed}) {
        for (const bool ends : {false, true}) {
          for (const bool accumulate : {false, true}) check(table, sizes, kind, ends, accumulate);
        }
      }
    }
  }
}

// A row of infinities: what lies beside the columns must not make 0 * infinity of it.
TEST(Products, RaiseNoExceptionThatNoElementRaises) {
  for (const KernelsOfIsa& table : all_kernels()) {
    for (const Kind kind : {Kind::kPlain, Kind::kLeftTransposed, Kind::kRightTransposed}) {
      Case c({7, 21, 10}, kind);
      for (int64_t k = 0; k < 21; ++k) {
        c.a[static_cast<std::size_t>(3 * c.p.a_row + k * c.p.a_column)] = kInf;
      }
      for (float& v : c.b) v = std::abs(v) + 1;
      std::feclearexcept(FE_ALL_EXCEPT);
      table.kernels->product(c.product());
      EXPECT_EQ(std::fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW), 0) << table.name;
      for (std::size_t i = 0; i < c.out.size(); ++i) {
        EXPECT_EQ(c.out[i] == kInf, i / 10 == 3) << table.name << " at " << i;
      }
    }
  }
}

TEST(Products, KeepNaNInItsRowOrColumn) {
  for (const KernelsOfIsa& table : all_kernels()) {
    Case c({9, 30, 21}, Kind::kPlain);
    c.a[5 * 30 + 29] = std::nanf("");
    c.b[7 * 21 + 20] = std::nanf("");
    c.p.relu = true;
    table.kernels->product(c.product());
    for (std::size_t i = 0; i < c.out.size(); ++i) {
      EXPECT_EQ(std::isnan(c.out[i]), i / 21 == 5 || i % 21 == 20) << table.name << " at " << i;
    }
  }
}

struct Results {
  Tensor y, kernel_gradient, input_gradient;
};

Results results(const Tensor& x, const Tensor& kernel, const Tensor& bias, const Tensor& g) {
  Results out{at::empty({x.size(0), kernel.size(1)}, x.options()),
              at::full(kernel.sizes(), 1, kernel.options()), at::empty(x.sizes(), x.options())};
  dense_product(out.y, x, kernel, bias, true);
  dense_kernel_gradient(out.kernel_gradient, x, g, true);
  dense_input_gradient(out.input_gradient, g, kernel);
  return out;
}

void expect_same_together(const Results& apart, const Tensor& x, const Tensor& kernel,
                          const Tensor& g) {
  Tensor dw = at::full(kernel.sizes(), 1, kernel.options());
  Tensor dx = at::empty(x.sizes(), x.options());
  dense_gradients(dw, dx, x, g, kernel, true);
  EXPECT_TRUE(dw.equal(apart.kernel_gradient));
  EXPECT_TRUE(dx.equal(apart.input_gradient));
}

void expect_near_libtorch(const Tensor& x, const Tensor& kernel, const Tensor& g) {
  const Tensor bias = at::randn({kernel.size(1)});
  const Results own = results(x, kernel, bias, g);
  EXPECT_TRUE(own.y.allclose(at::addmm(bias, x, kernel).relu(), 1e-4, 1e-4));
  EXPECT_TRUE(own.kernel_gradient.allclose(at::mm(x.t(), g) + 1, 1e-4, 1e-4));
  EXPECT_TRUE(own.input_gradient.allclose(at::mm(g, kernel.t()), 1e-4, 1e-4));
  expect_same_together(own, x, kernel, g);
}

TEST(Products, TakeMatricesThatAreNotContiguous) {
  expect_near_libtorch(at::randn({33, 20}).t(), at::randn({33, 10}), at::randn({10, 20}).t());
  expect_near_libtorch(at::randn({20, 40}).narrow(1, 3, 33), at::randn({10, 33}).t(),
                       at::randn({20, 10}));
}

TEST(Products, TakeFewRowsOrColumns) {
  for (const int64_t rows : {1, 3, 7, 8, 40}) {
    for (const int64_t columns : {1, 10, 17, 64, 100}) {
      expect_near_libtorch(at::randn({rows, 33}), at::randn({33, columns}),
                           at::randn({rows, columns}));
    }
  }
}

TEST(Products, TakeNoRows) {
  expect_near_libtorch(at::randn({0, 33}), at::randn({33, 10}), at::randn({0, 10}));
}

// Large enough to be cut, with parts that end within a vector and within a tile.
TEST(Products, AreTheSameBitsWithAnyNumberOfThreads) {
  for (const auto& [rows, depth, columns] : {Sizes{67, 700, 1001}, Sizes{500, 333, 130}}) {
    const Tensor x = at::randn({rows, depth}), kernel = at::randn({depth, columns});
    const Tensor bias = at::randn({columns}), g = at::randn({rows, columns});
    const Results one = [&] {
      const IntraOpThreads threads(1);
      return results(x, kernel, bias, g);
    }();
    for (const int count : {2, 3, 7}) {
      const IntraOpThreads threads(count);
      const Results more = results(x, kernel, bias, g);
      EXPECT_TRUE(one.y.equal(more.y)) << count;
      EXPECT_TRUE(one.kernel_gradient.equal(more.kernel_gradient)) << count;
      EXPECT_TRUE(one.input_gradient.equal(more.input_gradient)) << count;
      expect_same_together(one, x, kernel, g);
    }
  }
}

}  // namespace
}  // namespace cohort::keras::internal
