// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/max_pool2d.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/error.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/keras/layers/pooling.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<Tensor>;

testing::GradientCase max_case(const Shape& input, Size2D size, Pooling2DOptions options,
                               std::vector<int64_t> pad) {
  const Size2D strides = options.strides.value_or(size);
  return {.name = str_cat("max_pooling2d ", bracketed(input), " ", options.padding),
          .make = [=]() -> Layer { return MaxPooling2D(size, options); },
          .input = input,
          .reference = [=](const Tensor& x, const Weights&) -> Tensor {
            const double lowest = -std::numeric_limits<double>::infinity();
            const Tensor padded =
                at::constant_pad_nd(x, {0, 0, pad[0], pad[1], pad[2], pad[3]}, lowest);
            return at::max_pool2d(padded.permute({0, 3, 1, 2}), size.each, strides.each)
                .permute({0, 2, 3, 1});
          }};
}

TEST(MaxPooling2D, GradientsMatchPlainOperations) {
  testing::check_gradients(max_case({2, 6, 4, 3}, 2, {}, {0, 0, 0, 0}));
  testing::check_gradients(max_case({2, 7, 5, 16}, 2, {}, {0, 0, 0, 0}));
  testing::check_gradients(
      max_case({2, 7, 6, 20}, {3, 2}, {.strides = Size2D(2, 1)}, {0, 0, 0, 0}));
  testing::check_gradients(max_case({1, 8, 9, 5}, 2, {.strides = 3}, {0, 0, 0, 0}));
}

TEST(MaxPooling2D, GradientsMatchWithSamePadding) {
  testing::check_gradients(max_case({2, 5, 6, 17}, 2, {.padding = "same"}, {0, 0, 0, 1}));
  testing::check_gradients(
      max_case({2, 5, 6, 4}, 3, {.strides = 2, .padding = "same"}, {0, 1, 1, 1}));
}

// Own kernels on one thread, LibTorch's on several.
TEST(MaxPooling2D, GivesTheGradientOfEqualMaximaToTheFirst) {
  for (const int threads : {1, 2}) {
    const cohort::internal::runtime::IntraOpThreads intra_op(threads);
    MaxPooling2D layer;
    Tensor x = ones({1, 2, 2, 1});
    GradientTape tape;
    tape.watch(x);
    const Tensor y = layer(x);
    EXPECT_EQ(to_vector<float>(tape.gradient(y, x)), (std::vector<float>{1, 0, 0, 0})) << threads;
  }
}

TEST(MaxPooling2D, KeepsNan) {
  MaxPooling2D layer;
  Tensor x = ones({1, 2, 2, 16});
  x.view({-1})[20].fill_(std::numeric_limits<double>::quiet_NaN());
  for (const int threads : {1, 2}) {
    const cohort::internal::runtime::IntraOpThreads intra_op(threads);
    const std::vector<float> y = to_vector<float>(layer(x));
    for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(std::isnan(y[c]), c == 4) << c;
  }
}

TEST(AveragePooling2D, GradientsMatchPlainOperations) {
  const auto plain = [](const Tensor& x, const Weights&) -> Tensor {
    return at::avg_pool2d(x.permute({0, 3, 1, 2}), {2, 2}, {2, 2}).permute({0, 2, 3, 1});
  };
  testing::check_gradients({.name = "average_pooling2d",
                            .make = []() -> Layer { return AveragePooling2D(); },
                            .input = {2, 5, 6, 3},
                            .reference = plain});
}

TEST(AveragePooling2D, DoesNotCountWhatLiesOutside) {
  AveragePooling2D layer(2, {.strides = 1, .padding = "same"});
  const Tensor x = from_vector<float>({1, 2, 3, 4}, {1, 2, 2, 1});
  EXPECT_EQ(to_vector<float>(layer(x)), (std::vector<float>{2.5, 3, 3.5, 4}));
}

TEST(GlobalAveragePooling2D, AveragesRowsAndColumns) {
  GlobalAveragePooling2D layer;
  const Tensor x = from_vector<float>({1, 10, 2, 20, 3, 30, 4, 40}, {1, 2, 2, 2});
  EXPECT_EQ(to_vector<float>(layer(x)), (std::vector<float>{2.5, 25}));
  GlobalAveragePooling2D kept({.keepdims = true});
  EXPECT_EQ(shape_of(kept(x)), (Shape{1, 1, 1, 2}));
  EXPECT_EQ(kept.base().compute_output_shape({kUnknownDim, 2, 2, 2}),
            (Shape{kUnknownDim, 1, 1, 2}));
}

TEST(Pooling2D, ComputesKerasShapes) {
  MaxPooling2D valid(3, {.strides = 2});
  EXPECT_EQ(valid.base().compute_output_shape({kUnknownDim, 28, 27, 8}),
            (Shape{kUnknownDim, 13, 13, 8}));
  MaxPooling2D same(2, {.padding = "same"});
  EXPECT_EQ(same.base().compute_output_shape({kUnknownDim, 5, 6, 8}),
            (Shape{kUnknownDim, 3, 3, 8}));
  MaxPooling2D first(2, {.data_format = "channels_first"});
  EXPECT_EQ(shape_of(first(zeros({2, 3, 5, 6}))), (Shape{2, 3, 2, 3}));
  EXPECT_THROW(valid(zeros({2, 2, 8})), InvalidArgument);
  EXPECT_THROW(valid(zeros({1, 2, 2, 8})), InvalidArgument);
  EXPECT_THROW(MaxPooling2D(2, {.padding = "full"}), InvalidArgument);
}

// LibTorch's own is not for these types.
TEST(AveragePooling3D, ComputesInMixedPrecision) {
  const Tensor x = random_normal({2, 5, 4, 5, 3});
  const Tensor exact = AveragePooling3D(2, {.padding = "same"})(x);
  for (const char* policy : {"mixed_float16", "mixed_bfloat16"}) {
    const AveragePooling3D pool(2, {.padding = "same", .dtype = policy});
    Tensor watched = x.clone();
    GradientTape tape;
    tape.watch(watched);
    const Tensor y = pool(watched);
    EXPECT_EQ(y.scalar_type(), pool.base().dtype_policy().compute_dtype());
    EXPECT_TRUE(y.to(kFloat32).allclose(exact, 2e-2, 2e-2)) << policy;
    EXPECT_EQ(shape_of(tape.gradient(y, watched)), shape_of(x));
  }
}

}  // namespace
}  // namespace cohort::keras
