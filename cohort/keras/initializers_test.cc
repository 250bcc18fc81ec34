// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/initializers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cohort/base/error.h"
#include "cohort/runtime/random.h"

namespace cohort::keras {
namespace {

struct Moments {
  double mean, deviation, lowest, highest;
};

Moments moments(const Initializer& initializer, const Shape& shape) {
  const Tensor w = initializer(shape, kFloat32).to(kFloat64);
  return {w.mean().item<double>(), w.std(false).item<double>(), w.min().item<double>(),
          w.max().item<double>()};
}

TEST(Initializer, ConstantsAreConstant) {
  EXPECT_EQ(to_vector<float>(Initializer("zeros")({2}, kFloat32)), (std::vector<float>{0, 0}));
  EXPECT_EQ(to_vector<float>(Initializer("ones")({2}, kFloat32)), (std::vector<float>{1, 1}));
  EXPECT_EQ(to_vector<double>(Constant(0.1)({1}, kFloat64)), (std::vector<double>{0.1}));
  EXPECT_EQ(to_vector<float>(Identity(2)({2, 2}, kFloat32)), (std::vector<float>{2, 0, 0, 2}));
}

TEST(Initializer, UniformScalingHasItsLimits) {
  set_seed(1);
  const double limit = std::sqrt(6.0 / (300 + 200));
  const Moments glorot = moments("glorot_uniform", {300, 200});
  EXPECT_NEAR(glorot.mean, 0, 0.002);
  EXPECT_NEAR(glorot.deviation, limit / std::sqrt(3.0), 0.001);
  EXPECT_GE(glorot.lowest, -limit);
  EXPECT_LE(glorot.highest, limit);
  const Moments he = moments("he_uniform", {300, 200});
  EXPECT_NEAR(he.highest, std::sqrt(6.0 / 300), 0.001);
  const Moments lecun = moments("lecun_uniform", {300, 200});
  EXPECT_NEAR(lecun.highest, std::sqrt(3.0 / 300), 0.001);
}

TEST(Initializer, NormalScalingIsCutAndStillHasItsDeviation) {
  set_seed(2);
  const Moments he = moments("he_normal", {400, 300});
  const double deviation = std::sqrt(2.0 / 400);
  EXPECT_NEAR(he.deviation, deviation, 0.02 * deviation);
  EXPECT_LE(he.highest, 2 * deviation / 0.87962566103423978);
  const Moments glorot = moments("glorot_normal", {400, 300});
  EXPECT_NEAR(glorot.deviation, std::sqrt(2.0 / 700), 0.001);
}

TEST(Initializer, CountsTheFansOfConvolutions) {
  set_seed(3);
  const Moments m = moments("glorot_uniform", {3, 3, 32, 64});
  EXPECT_NEAR(m.highest, std::sqrt(6.0 / (9 * 32 + 9 * 64)), 0.001);
}

TEST(Initializer, RandomOnesHaveKerasDefaults) {
  set_seed(4);
  const Moments normal = moments("random_normal", {500, 200});
  EXPECT_NEAR(normal.deviation, 0.05, 0.001);
  const Moments uniform = moments("random_uniform", {500, 200});
  EXPECT_NEAR(uniform.lowest, -0.05, 0.001);
  EXPECT_NEAR(uniform.highest, 0.05, 0.001);
  const Moments cut = moments("truncated_normal", {500, 200});
  EXPECT_LE(cut.highest, 0.1);
  EXPECT_NEAR(cut.deviation, 0.05 * 0.8796, 0.001);
}

TEST(Initializer, SeedsRepeatAndWeightsDiffer) {
  const auto draw = [](const Initializer& i) { return i({4, 5}, kFloat32); };
  EXPECT_TRUE(draw(GlorotUniform(7)).equal(draw(GlorotUniform(7))));
  EXPECT_FALSE(draw(GlorotUniform(7)).equal(draw(GlorotUniform(8))));
  set_seed(9);
  const Tensor first = draw("he_normal");
  const Tensor second = draw("he_normal");
  EXPECT_FALSE(first.equal(second));
  set_seed(9);
  EXPECT_TRUE(first.equal(draw("he_normal")));
}

TEST(Initializer, OrthogonalIsOrthogonal) {
  set_seed(5);
  const Tensor tall = Orthogonal()({6, 4}, kFloat64);
  const Tensor wide = Orthogonal(2)({2, 2, 9}, kFloat64).reshape({4, 9});
  EXPECT_LT((tall.t().mm(tall) - Identity()({4, 4}, kFloat64)).abs().max().item<double>(), 1e-12);
  EXPECT_LT((wide.mm(wide.t()) - Identity(4)({4, 4}, kFloat64)).abs().max().item<double>(), 1e-12);
}

TEST(Initializer, RefusesUnknownNamesAndTypes) {
  EXPECT_THROW(Initializer("xavier"), InvalidArgument);
  EXPECT_THROW(Initializer("he_normal")({2}, kInt64), InvalidArgument);
  EXPECT_THROW(Identity()({2}, kFloat32), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
