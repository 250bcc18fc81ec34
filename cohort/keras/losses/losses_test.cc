// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/losses/losses.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

double number(const Tensor& x) { return x.item<double>(); }

const Tensor& truth() {
  static const Tensor y = tensor({0, 1, 0, 0}).view({2, 2});
  return y;
}
const Tensor& predicted() {
  static const Tensor p = tensor({1, 1, 1, 0}).view({2, 2});
  return p;
}

// The examples of Keras's own documentation.
TEST(Losses, DocumentedValues) {
  const Tensor w = tensor({0.7, 0.3});
  EXPECT_NEAR(number(MeanSquaredError()(truth(), predicted())), 0.5, 1e-7);
  EXPECT_NEAR(number(MeanSquaredError()(truth(), predicted(), w)), 0.25, 1e-7);
  EXPECT_NEAR(number(MeanSquaredError({.reduction = Reduction::kSum})(truth(), predicted())), 1.0,
              1e-7);
  const Tensor each = MeanSquaredError({.reduction = Reduction::kNone})(truth(), predicted());
  EXPECT_EQ(to_vector<float>(each), (std::vector<float>{0.5, 0.5}));
  EXPECT_NEAR(number(MeanAbsoluteError()(truth(), predicted())), 0.5, 1e-7);
  const Tensor p = tensor({0.6, 0.4, 0.4, 0.6}).view({2, 2});
  EXPECT_NEAR(number(Huber()(truth(), p)), 0.155, 1e-7);
  EXPECT_NEAR(number(Huber()(truth(), p, tensor({1.0, 0.0}))), 0.09, 1e-7);
  EXPECT_NEAR(number(Huber({.delta = 0.5})(tensor({0.0}), tensor({2.0}))), 0.5 * 2 - 0.125, 1e-7);
}

TEST(Losses, GradientsOfErrors) {
  const Tensor x = predicted().clone().set_requires_grad(true);
  MeanSquaredError()(truth(), x).backward();
  EXPECT_EQ(to_vector<float>(x.grad()), (std::vector<float>{0.5, 0, 0.5, 0}));
  const Tensor h = tensor({3.0, 0.5}, kFloat64).view({2, 1}).set_requires_grad(true);
  Huber()(zeros({2, 1}), h).backward();
  EXPECT_EQ(to_vector<double>(h.grad()), (std::vector<double>{0.5, 0.25}));
}

TEST(Losses, RanksAlignByATrailingAxis) {
  const Tensor flat = tensor({1, 2, 3});
  const Tensor column = tensor({1, 1, 1}).view({3, 1});
  EXPECT_NEAR(number(MeanSquaredError()(flat, column)), 5.0 / 3, 1e-6);
  EXPECT_NEAR(number(MeanSquaredError()(column, flat)), 5.0 / 3, 1e-6);
  EXPECT_NEAR(number(MeanSquaredError()(flat.to(kInt64), column)), 5.0 / 3, 1e-6);
  // Silent broadcasting of [3] against [3, 2] would be a wrong loss.
  EXPECT_THROW(MeanSquaredError()(flat, zeros({3, 2})), InvalidArgument);
}

TEST(Losses, EmptyBatchIsZero) {
  const Tensor x = zeros({0, 2}).set_requires_grad(true);
  const Tensor loss = MeanSquaredError()(zeros({0, 2}), x);
  EXPECT_EQ(number(loss), 0);
  loss.backward();
  EXPECT_EQ(shape_of(x.grad()), (Shape{0, 2}));
}

TEST(Losses, WeightsBroadcastAsInKeras) {
  const Tensor p = ones({2, 3, 4});
  const Tensor y = zeros({2, 3, 4});
  const MeanSquaredError sum({.reduction = Reduction::kSum});
  EXPECT_NEAR(number(sum(y, p)), 6, 1e-6);
  EXPECT_NEAR(number(sum(y, p, tensor({1, 2}).view({2, 1}))), 9, 1e-6);
  EXPECT_NEAR(number(sum(y, p, scalar(2))), 12, 1e-6);
  EXPECT_NEAR(number(sum(y, p, ones({2, 3, 1}))), 6, 1e-6);
  EXPECT_THROW(sum(y, p, ones({4})), InvalidArgument);
}

TEST(Losses, NamesFunctionsAndOwnClasses) {
  EXPECT_EQ(Loss("mse").name(), "mean_squared_error");
  EXPECT_EQ(Loss("MAE").name(), "mean_absolute_error");
  EXPECT_EQ(Loss(std::string("huber")).name(), "huber_loss");
  EXPECT_EQ(Loss("sparse_categorical_crossentropy").name(), "sparse_categorical_crossentropy");
  testing::expect_error<InvalidArgument>({"mean_squared_error"}, [&] { Loss unknown("msee"); });
  EXPECT_THROW(Loss()(truth(), predicted()), FailedPrecondition);

  const Loss function([](const Tensor& y, const Tensor& p) { return (p - y).square().sum(-1); });
  EXPECT_NEAR(number(function(truth(), predicted())), 1.0, 1e-7);
  struct Own : LossBase {
    Own() : LossBase("own", Reduction::kSum) {}
    Tensor call(const Tensor& y, const Tensor& p) override { return (p - y).abs().sum(-1); }
  };
  const Loss own = std::make_shared<Own>();
  EXPECT_EQ(own.name(), "own");
  EXPECT_NEAR(number(own(truth(), predicted())), 2.0, 1e-7);
  EXPECT_NEAR(number(own.reduced(truth(), predicted(), {}, 0.5)), 1.0, 1e-7);
  // A class of the library is the same loss as a handle, not a function of two tensors.
  const Loss handle = MeanSquaredError({.reduction = Reduction::kSum});
  EXPECT_EQ(handle.reduction(), Reduction::kSum);
}

}  // namespace
}  // namespace cohort::keras
