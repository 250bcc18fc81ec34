// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/keras/layers/convolution.h"
#include "cohort/keras/layers/internal/convolution_kernels.h"
#include "cohort/keras/layers/internal/gradient_cases.h"
#include "cohort/runtime/intra_op.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using Weights = std::vector<Tensor>;

struct ConvSetup {
  Shape input;
  int64_t filters;
  Size2D kernel = 3;
  Conv2DOptions options = {};
  std::vector<int64_t> pad = {0, 0, 0, 0};  ///< Left, right, top, bottom: what "same" means here.
};

testing::GradientCase conv_case(const ConvSetup& s) {
  const auto& o = s.options;
  return {.name = str_cat("conv2d to ", s.filters, " of ", bracketed(s.input), " ", o.padding),
          .make = [=]() -> Layer { return Conv2D(s.filters, s.kernel, s.options); },
          .input = s.input,
          .reference = [=](const Tensor& x, const Weights& w) -> Tensor {
            const Tensor padded =
                at::constant_pad_nd(x, {0, 0, s.pad[0], s.pad[1], s.pad[2], s.pad[3]}, 0);
            Tensor y = at::convolution(padded.permute({0, 3, 1, 2}), w[0].permute({3, 2, 0, 1}), {},
                                       s.options.strides.each, {0, 0}, s.options.dilation_rate.each,
                                       false, {0, 0}, s.options.groups)
                           .permute({0, 2, 3, 1});
            if (s.options.use_bias) y = y + w[1];
            return s.options.activation(y);
          }};
}

TEST(Conv2D, GradientsMatchPlainOperations) {
  testing::check_gradients(conv_case({.input = {2, 6, 7, 3}, .filters = 4}));
  testing::check_gradients(
      conv_case({.input = {2, 8, 7, 1}, .filters = 16, .options = {.activation = "relu"}}));
  testing::check_gradients(
      conv_case({.input = {2, 6, 7, 16}, .filters = 48, .options = {.activation = "relu"}}));
  testing::check_gradients(conv_case({.input = {1, 5, 5, 32}, .filters = 80, .kernel = {2, 3}}));
}

TEST(Conv2D, GradientsMatchWithStridesAndDilation) {
  testing::check_gradients(
      conv_case({.input = {2, 9, 8, 16}, .filters = 16, .options = {.strides = {2, 3}}}));
  testing::check_gradients(conv_case({.input = {2, 9, 8, 16},
                                      .filters = 16,
                                      .options = {.dilation_rate = {2, 2}, .use_bias = false}}));
}

TEST(Conv2D, GradientsMatchWithGroups) {
  testing::check_gradients(
      conv_case({.input = {2, 5, 5, 4}, .filters = 16, .options = {.groups = 2}}));
}

TEST(Conv2D, GradientsMatchWithSamePadding) {
  testing::check_gradients(conv_case({.input = {2, 5, 6, 16},
                                      .filters = 16,
                                      .options = {.padding = "same", .activation = "relu"},
                                      .pad = {1, 1, 1, 1}}));
  // TensorFlow puts the odd zero behind: 6 columns at stride 2 need one, 5 rows two.
  testing::check_gradients(conv_case({.input = {2, 5, 6, 16},
                                      .filters = 16,
                                      .options = {.strides = 2, .padding = "same"},
                                      .pad = {0, 1, 1, 1}}));
}

TEST(Conv2D, LeavesSeveralThreadsToLibTorch) {
  const Tensor x = ones({2, 5, 5, 16});
  const Tensor kernel = ones({3, 3, 16, 16});
  for (const int threads : {1, 2}) {
    const cohort::internal::runtime::IntraOpThreads intra_op(threads);
    EXPECT_EQ(internal::has_own_convolution(x, kernel, 1), threads == 1);
  }
}

TEST(Conv2D, PadsAsKerasDoes) {
  Conv2D layer(1, 2, {.padding = "same", .kernel_initializer = "ones"});
  const Tensor x = from_vector<float>({1, 2, 3, 4}, {1, 2, 2, 1});
  EXPECT_EQ(to_vector<float>(layer(x)), (std::vector<float>{10, 6, 7, 4}));
}

TEST(Conv2D, ComputesKerasShapes) {
  Conv2D layer(32, {3, 5}, {.strides = {2, 1}, .padding = "same"});
  EXPECT_EQ(layer.base().compute_output_shape({kUnknownDim, 9, 8, 3}),
            (Shape{kUnknownDim, 5, 8, 32}));
  const Tensor y = layer(zeros({2, 9, 8, 3}));
  EXPECT_EQ(shape_of(y), (Shape{2, 5, 8, 32}));
  EXPECT_EQ(layer.variables()[0].shape(), (Shape{3, 5, 3, 32}));
  Conv2D first(16, 3, {.data_format = "channels_first"});
  EXPECT_EQ(shape_of(first(zeros({2, 3, 9, 8}))), (Shape{2, 16, 7, 6}));
  EXPECT_EQ(first.base().compute_output_shape({kUnknownDim, 3, 9, 8}),
            (Shape{kUnknownDim, 16, 7, 6}));
}

TEST(Conv2D, RefusesWhatCannotBe) {
  EXPECT_THROW(Conv2D(0, 3), InvalidArgument);
  EXPECT_THROW(Conv2D(4, 0), InvalidArgument);
  EXPECT_THROW(Conv2D(4, 3, {.padding = "causal"}), InvalidArgument);
  cohort::testing::expect_error<InvalidArgument>(
      {"strides > 1 and dilation_rate > 1", "got 2 and (1, 3)"}, [] {
        Conv2D(4, 3, {.strides = 2, .dilation_rate = {1, 3}});
      });
  EXPECT_THROW(Conv2D(4, 3, {.groups = 3}), InvalidArgument);
  Conv2D layer(4, 3);
  EXPECT_THROW(layer(zeros({1, 2, 2, 1})), InvalidArgument);
  layer(zeros({1, 5, 5, 1}));
  EXPECT_THROW(layer(zeros({1, 5, 5, 2})), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
