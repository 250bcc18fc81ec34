// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "cohort/base/cpu.h"
#include "cohort/base/error.h"
#include "cohort/keras/losses/internal/cross_entropy_kernels.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

double number(const Tensor& x) { return x.item<double>(); }

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0) return a.sizes() == b.sizes() ? 0 : 1;
  return number((a.to(kFloat64) - b.to(kFloat64)).abs().max());
}

Tensor leaf(const Tensor& x) { return x.detach().clone().set_requires_grad(true); }

Tensor gradient_of(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  const Tensor at = leaf(x);
  f(at).backward();
  return at.grad();
}

Tensor finite_differences(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  constexpr double kStep = 1e-6;
  const at::NoGradGuard no_grad;
  Tensor out = zeros(shape_of(x), kFloat64);
  const Tensor flat = out.view({-1});
  for (int64_t i = 0; i < x.numel(); ++i) {
    Tensor up = x.clone();
    Tensor down = x.clone();
    up.view({-1})[i].add_(kStep);
    down.view({-1})[i].sub_(kStep);
    flat[i].fill_((number(f(up)) - number(f(down))) / (2 * kStep));
  }
  return out;
}

struct Case {
  std::string name;
  Loss loss;
  Tensor labels;
  Tensor scores;  // float64
};

std::vector<Case> cases(Reduction reduction) {
  const Tensor logits =
      tensor({0.3, -1.2, 2.0, 0.1, 0.7, -0.4, 1.5, -2.0, 0.2, 0.9, 0.0, -0.6}, kFloat64)
          .view({4, 3});
  const Tensor classes = tensor({2, 0, 1, 0}, kInt64);
  const Tensor soft = at::softmax(logits * 0.5 + 0.3, -1).flip(0);
  const Tensor probabilities = at::softmax(logits, -1);
  const Tensor uneven = probabilities * 1.7;  // not normalised
  const Tensor bits = tensor({0, 1, 1, 0.3, 0, 0, 1, 1, 0, 0.9, 1, 0}, kFloat64).view({4, 3});
  std::vector<Case> out;
  for (const double smoothing : {0.0, 0.1}) {
    const auto options = [&](bool from_logits) {
      return CrossentropyOptions{
          .from_logits = from_logits, .label_smoothing = smoothing, .reduction = reduction};
    };
    const std::string s = smoothing > 0 ? " smoothed" : "";
    out.push_back(
        {"sparse logits" + s, SparseCategoricalCrossentropy(options(true)), classes, logits});
    out.push_back({"sparse probabilities" + s, SparseCategoricalCrossentropy(options(false)),
                   classes, uneven});
    out.push_back({"dense logits" + s, CategoricalCrossentropy(options(true)), soft, logits});
    out.push_back(
        {"dense probabilities" + s, CategoricalCrossentropy(options(false)), soft, uneven});
    out.push_back({"binary logits" + s, BinaryCrossentropy(options(true)), bits, logits});
    out.push_back(
        {"binary probabilities" + s, BinaryCrossentropy(options(false)), bits, probabilities});
  }
  return out;
}

Tensor weighted_sum(const Loss& loss, const Tensor& labels, const Tensor& scores,
                    const Tensor& weights) {
  const Tensor value = loss(labels, scores, weights);
  if (value.dim() == 0) return value;
  return (value * arange(value.numel()).to(value.scalar_type())).sum();
}

// The recorded operations in float64 are right by finite differences, and the node of float32 is
// right by them.
TEST(CrossEntropy, GradientsOfEveryKindReductionAndWeight) {
  const Tensor weights = tensor({0.5, 2, 0, 1}, kFloat64);
  for (const Reduction reduction : {Reduction::kSumOverBatchSize, Reduction::kSum, Reduction::kNone,
                                    Reduction::kMean, Reduction::kMeanWithSampleWeight}) {
    for (const Case& c : cases(reduction)) {
      SCOPED_TRACE(c.name);
      for (const Tensor& w : {Tensor(), weights}) {
        const auto f = [&](const Tensor& x) {
          const bool labelled = c.labels.scalar_type() == kInt64;
          const Tensor labels = labelled ? c.labels : c.labels.to(x.scalar_type());
          return weighted_sum(c.loss, labels, x, w);
        };
        const Tensor exact = gradient_of(c.scores, f);
        EXPECT_LT(largest_difference(exact, finite_differences(c.scores, f)), 5e-8);
        const Tensor fast = gradient_of(c.scores.to(kFloat32), f);
        EXPECT_LT(largest_difference(fast, exact), 3e-6);
        EXPECT_NEAR(number(f(c.scores.to(kFloat32))), number(f(c.scores)), 3e-6);
        const at::NoGradGuard no_grad;
        EXPECT_NEAR(number(f(c.scores.to(kFloat32))), number(f(c.scores)), 3e-6);
      }
    }
  }
}

TEST(CrossEntropy, AgreesWithLibTorch) {
  const Tensor logits = at::randn({64, 11}, at::kDouble) * 4;
  const Tensor labels = arange(64).remainder(11);
  for (const double smoothing : {0.0, 0.2}) {
    const SparseCategoricalCrossentropy loss({.from_logits = true, .label_smoothing = smoothing});
    const auto theirs = [&](const Tensor& x) {
      return at::cross_entropy_loss(x, labels, {}, 1, -100, smoothing);
    };
    const auto ours = [&](const Tensor& x) { return loss(labels, x); };
    EXPECT_NEAR(number(ours(logits)), number(theirs(logits)), 1e-12);
    EXPECT_LT(largest_difference(gradient_of(logits, ours), gradient_of(logits, theirs)), 1e-12);
    const Tensor single = logits.to(kFloat32);
    EXPECT_NEAR(number(ours(single)), number(theirs(logits)), 2e-6);
    EXPECT_LT(largest_difference(gradient_of(single, ours), gradient_of(logits, theirs)), 1e-7);
  }
}

// The examples of Keras's own documentation.
TEST(CrossEntropy, DocumentedValues) {
  const Tensor p = tensor({0.05, 0.95, 0, 0.1, 0.8, 0.1}).view({2, 3});
  EXPECT_NEAR(number(SparseCategoricalCrossentropy()(tensor({1, 2}, kInt64), p)), 1.1769392, 1e-6);
  const Tensor one_hot = tensor({0, 1, 0, 0, 0, 1}).view({2, 3});
  EXPECT_NEAR(number(CategoricalCrossentropy()(one_hot, p)), 1.1769392, 1e-6);
  EXPECT_NEAR(number(CategoricalCrossentropy()(one_hot, p, tensor({0.3, 0.7}))), 0.8135988, 1e-6);
  const Tensor bits = tensor({0, 1, 0, 0}).view({2, 2});
  const Tensor logits = tensor({-18.6, 0.51, 2.94, -12.8}).view({2, 2});
  EXPECT_NEAR(number(BinaryCrossentropy({.from_logits = true})(bits, logits)), 0.865458, 1e-6);
  const Tensor ps = tensor({0.6, 0.3, 0.2, 0.8}).view({2, 2});
  EXPECT_NEAR(number(BinaryCrossentropy()(bits, ps)),
              (-std::log(0.4) - std::log(0.3) - std::log(0.8) - std::log(0.2)) / 4, 1e-6);
  EXPECT_NEAR(number(BinaryCrossentropy()(tensor({0.0, 1.0}), tensor({1.0, 0.0}))), -std::log(1e-7),
              2e-1);  // clipped: 1 - 1e-7 is not exact in float32
}

TEST(CrossEntropy, ReductionsAndWeights) {
  const Tensor logits = tensor({1, 2, 3, 0, 0, 0, 5, -1, 0}).view({3, 3});
  const Tensor labels = tensor({2, 1, 0}, kInt64);
  const Tensor values = -at::log_softmax(logits, -1).gather(1, labels.unsqueeze(1)).squeeze(1);
  const Tensor w = tensor({2, 0.5, 1});
  const auto with = [&](Reduction reduction, const Tensor& weights) {
    return SparseCategoricalCrossentropy({.from_logits = true, .reduction = reduction})(
        labels, logits, weights);
  };
  const double sum = number((values * w).sum());
  EXPECT_NEAR(number(with(Reduction::kSumOverBatchSize, w)), sum / 3, 1e-6);
  EXPECT_NEAR(number(with(Reduction::kMean, w)), sum / 3, 1e-6);
  EXPECT_NEAR(number(with(Reduction::kMeanWithSampleWeight, w)), sum / 3.5, 1e-6);
  EXPECT_NEAR(number(with(Reduction::kSum, w)), sum, 1e-6);
  EXPECT_LT(largest_difference(with(Reduction::kNone, w), values * w), 1e-6);
  EXPECT_NEAR(number(with(Reduction::kSum, tensor({3}))), 3 * number(values.sum()), 1e-5);
  EXPECT_EQ(number(with(Reduction::kMeanWithSampleWeight, zeros({3}))), 0);
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  EXPECT_NEAR(number(loss.reduced(labels, logits, w, 0.25)), sum / 12, 1e-6);
  EXPECT_THROW(with(Reduction::kSum, zeros({2})), InvalidArgument);
}

TEST(CrossEntropy, LabelsOfAnyTypeAndShape) {
  const Tensor logits = at::randn({2, 3, 5});
  const Tensor labels = tensor({0, 1, 2, 3, 4, 0}, kInt64).view({2, 3});
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const double expected = number(loss(labels, logits));
  for (const DType type : {kInt32, kUint8, kFloat32, kFloat64}) {
    EXPECT_EQ(number(loss(labels.to(type), logits)), expected);
    EXPECT_EQ(number(loss(labels.to(type).unsqueeze(-1), logits)), expected);
  }
  const Tensor values = SparseCategoricalCrossentropy(
      {.from_logits = true, .reduction = Reduction::kNone})(labels, logits);
  EXPECT_EQ(shape_of(values), (Shape{2, 3}));
  // Scores that are no contiguous float32.
  const Tensor strided = logits.transpose(0, 1);
  EXPECT_NEAR(number(loss(labels.t(), strided)), expected, 1e-6);
  EXPECT_NEAR(number(loss(labels, logits.to(kBFloat16))), expected, 3e-2);
}

TEST(CrossEntropy, EmptyBatchIsZero) {
  for (const Reduction reduction :
       {Reduction::kSumOverBatchSize, Reduction::kSum, Reduction::kMeanWithSampleWeight}) {
    for (const Case& c : cases(reduction)) {
      for (const DType type : {kFloat32, kFloat64}) {
        const Tensor x = leaf(c.scores.slice(0, 0, 0).to(type));
        const Tensor loss = c.loss(c.labels.slice(0, 0, 0), x);
        EXPECT_EQ(number(loss), 0) << c.name;
        loss.backward();
        EXPECT_EQ(shape_of(x.grad()), (Shape{0, 3}));
      }
    }
  }
}

TEST(CrossEntropy, ExtremeScores) {
  const float inf = std::numeric_limits<float>::infinity();
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const Tensor y = tensor({0}, kInt64);
  EXPECT_EQ(number(loss(y, tensor({1e30, -1e30, 0}).view({1, 3}))), 0);
  EXPECT_EQ(number(loss(y, tensor({0, -inf, -inf}).view({1, 3}))), 0);
  EXPECT_TRUE(std::isnan(number(loss(y, tensor({NAN, 0, 0}).view({1, 3})))));
  EXPECT_TRUE(std::isnan(number(loss(y, tensor({0, NAN, 0}).view({1, 3})))));
  const CategoricalCrossentropy dense({.from_logits = true});
  EXPECT_EQ(number(dense(tensor({1, 0}).view({1, 2}), tensor({0, -inf}).view({1, 2}))), 0);
  const Tensor g = gradient_of(tensor({200, -200, 0}).view({1, 3}),
                               [&](const Tensor& x) { return loss(tensor({1}, kInt64), x); });
  EXPECT_LT(largest_difference(g, tensor({1, -1, 0}).view({1, 3})), 1e-6);
}

TEST(CrossEntropy, MoreClassesThanABlock) {
  const Tensor logits = at::randn({3, 10000}, at::kDouble) * 3;
  const Tensor labels = tensor({0, 9999, 1234}, kInt64);
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  EXPECT_NEAR(number(loss(labels, logits.to(kFloat32))), number(loss(labels, logits)), 1e-5);
}

TEST(CrossEntropy, ErrorsNameValueAndClasses) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const auto expect_refused = [&](const Tensor& y, std::string_view words) {
    testing::expect_error<InvalidArgument>({words}, [&] { loss(y, zeros({2, 3})); });
  };
  expect_refused(tensor({0, 3}, kInt64), "labels in [0, 3), got 3 in row 1");
  expect_refused(tensor({-1, 0}, kInt64), "got -1");
  expect_refused(tensor({0, NAN}), "got nan");
  // Cut to 1, it would train for another class.
  expect_refused(tensor({0, 1.5}), "whole numbers as labels in [0, 3), got 1.5 in row 1");
  expect_refused(zeros({3}, kInt64), "labels of shape [2]");
  EXPECT_THROW(CategoricalCrossentropy()(zeros({2, 2}), zeros({2, 3})), InvalidArgument);
  EXPECT_THROW(loss(zeros({2}, kInt64), zeros({2, 3}, kInt64)), InvalidArgument);
  EXPECT_THROW(CategoricalCrossentropy({.label_smoothing = 2}), InvalidArgument);
}

TEST(CrossEntropy, BackwardTwiceAndScaled) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const Tensor x = leaf(at::randn({4, 3}));
  const Tensor y = tensor({0, 1, 2, 0}, kInt64);
  const Tensor value = loss(y, x);
  value.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  value.backward(scalar(2), /*retain_graph=*/false);
  EXPECT_LT(largest_difference(x.grad(), once * 3), 1e-6);
  EXPECT_ANY_THROW(value.backward());
  // Used twice in one graph, and added to something else.
  const Tensor z = leaf(x);
  (loss(y, z) + loss(y, z) * 2.0).backward();
  EXPECT_LT(largest_difference(z.grad(), once * 3), 1e-6);
}

// |d loss / d x|^2 differentiated once more, against the recorded operations in float64.
TEST(CrossEntropy, SecondDerivatives) {
  for (const Reduction reduction : {Reduction::kSumOverBatchSize, Reduction::kNone}) {
    for (const Case& c : cases(reduction)) {
      SCOPED_TRACE(c.name);
      std::vector<Tensor> seconds;
      for (const DType type : {kFloat64, kFloat32}) {
        const Tensor x = leaf(c.scores.to(type));
        const bool labelled = c.labels.scalar_type() == kInt64;
        weighted_sum(c.loss, labelled ? c.labels : c.labels.to(type), x, {})
            .backward({}, std::nullopt, /*create_graph=*/true);
        const Tensor first = std::exchange(x.mutable_grad(), Tensor());
        first.square().sum().backward();
        seconds.push_back(x.grad());
      }
      EXPECT_GT(number(seconds[0].abs().max()), 1e-4);
      EXPECT_LT(largest_difference(seconds[0], seconds[1]),
                1e-5 * (1 + number(seconds[0].abs().max())));
    }
  }
}

TEST(CrossEntropy, ChangedScoresAreLibTorchsErrorOnlyWhereTheyMatter) {
  const SparseCategoricalCrossentropy loss({.from_logits = true});
  const Tensor x = leaf(at::randn({4, 3}));
  const Tensor logits = x * 1.0;
  const Tensor value = loss(tensor({0, 1, 2, 0}, kInt64), logits);
  {
    const at::NoGradGuard no_grad;
    logits.add_(1);
  }
  EXPECT_ANY_THROW(value.backward({}, std::nullopt, /*create_graph=*/true));
}

TEST(CrossEntropy, ExponentialIsAccurateByEverySetOfInstructions) {
  using namespace cohort::internal::base;
  std::vector<float> x;
  for (float v = 0; v > -87.3F; v -= 0.0031F) x.push_back(v);
  const Isa before = current_isa();
  for (int isa = 0; isa <= static_cast<int>(best_isa()); ++isa) {
    use_isa(static_cast<Isa>(isa));
    std::vector<float> y = x;
    keras::internal::exp_of_negatives(y.data(), static_cast<int64_t>(y.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      EXPECT_LT(std::fabs(y[i] - exact), exact * 2.4e-7) << x[i] << " by set " << isa;
    }
    float ends[] = {-std::numeric_limits<float>::infinity(), NAN, -100, 0};
    keras::internal::exp_of_negatives(ends, 4);
    EXPECT_EQ(ends[0], 0);
    EXPECT_TRUE(std::isnan(ends[1]));
    EXPECT_EQ(ends[2], 0);
    EXPECT_EQ(ends[3], 1);
  }
  use_isa(before);
}

TEST(CrossEntropy, MeansAreRefusedInACustomLoopOverReplicas) {
  cohort::internal::runtime::ReplicaGroup group({.replicas = 2});
  const Tensor y = tensor({0, 1}, kInt64);
  const auto call = [&](Reduction reduction) {
    group.run([&](int) {
      SparseCategoricalCrossentropy({.reduction = reduction})(y, full({2, 2}, 0.5));
    });
  };
  testing::expect_error<InvalidArgument>({"kNone or kSum"},
                                         [&] { call(Reduction::kSumOverBatchSize); });
  call(Reduction::kSum);
  call(Reduction::kNone);
  group.run([&](int) {
    SparseCategoricalCrossentropy().reduced(y, full({2, 2}, 0.5), {}, 0.5);  // what fit() calls
  });
}

}  // namespace
}  // namespace cohort::keras
