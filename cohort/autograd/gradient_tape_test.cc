// SPDX-License-Identifier: Apache-2.0
#include "cohort/autograd/gradient_tape.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cohort/base/error.h"
#include "cohort/testing/expect_error.h"
#include "cohort/variables/component.h"

namespace cohort {
namespace {

using testing::expect_error;

std::vector<float> numbers(const Gradient& g) { return to_vector<float>(g.as_tensor()); }

TEST(GradientTape, PutsGradientsIntoTheArena) {
  const Variable w(tensor({1, 2, 3}));
  GradientTape tape;
  const Tensor loss = (w * w).sum();
  const Gradients g = tape.gradient(loss, std::span(&w, 1));
  EXPECT_EQ(numbers(g[0].gradient), (std::vector<float>{2, 4, 6}));
  EXPECT_TRUE(internal::variables::is_in_arena(w.impl(), g[0].gradient.dense()));
  EXPECT_TRUE(g[0].variable == w);
}

TEST(GradientTape, KeepsTwoResultsSideBySide) {
  const Variable w(tensor({1, 2}));
  GradientTape tape({.persistent = true});
  const Tensor one = (w * 3).sum();
  const Tensor two = (w * w).sum();
  const Gradients a = tape.gradient(one, std::span(&w, 1));
  const Gradients b = tape.gradient(two, std::span(&w, 1));
  EXPECT_EQ(numbers(a[0].gradient), (std::vector<float>{3, 3}));
  EXPECT_EQ(numbers(b[0].gradient), (std::vector<float>{2, 4}));
}

TEST(GradientTape, IsSpentAfterOneCall) {
  const Variable w(scalar(2));
  GradientTape tape;
  const Tensor y = w * w;
  EXPECT_EQ(tape.gradient(y, w).item<float>(), 4);
  EXPECT_FALSE(at::GradMode::is_enabled());
  EXPECT_THROW(tape.gradient(y, w), FailedPrecondition);
  tape.reset();
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_EQ(tape.gradient(w * 5, w).item<float>(), 5);
}

TEST(GradientTape, RestoresGradMode) {
  const at::NoGradGuard off;
  {
    GradientTape tape;
    EXPECT_TRUE(at::GradMode::is_enabled());
    const GradientTape::Pause pause(tape);
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST(GradientTape, UnconnectedSourcesHaveNoneOrZero) {
  const std::vector<Variable> v = {Variable(scalar(1)), Variable(tensor({1, 2}))};
  {
    GradientTape tape;
    const Gradients g = tape.gradient(v[0] * 2, v);
    EXPECT_TRUE(g[0].gradient.has_value());
    EXPECT_FALSE(g[1].gradient.has_value());
  }
  GradientTape tape;
  const Gradients g =
      tape.gradient(v[0] * 2, v, {.unconnected_gradients = UnconnectedGradients::kZero});
  EXPECT_EQ(numbers(g[1].gradient), (std::vector<float>{0, 0}));
  GradientTape constant;
  EXPECT_FALSE(constant.gradient(scalar(3), v)[0].gradient.has_value());
}

TEST(GradientTape, WatchesTensorsAndChosenVariables) {
  const Variable a(scalar(3));
  const Variable b(scalar(4));
  GradientTape tape({.watch_accessed_variables = false});
  tape.watch(a);
  Tensor x = scalar(2);
  tape.watch(x);
  const std::vector<Variable> both = {a, b};
  const Gradients g = tape.gradient(a * b * x, both);
  EXPECT_EQ(numbers(g[0].gradient), std::vector<float>{8});
  EXPECT_FALSE(g[1].gradient.has_value());
  Tensor integer = scalar(1, kInt64);
  GradientTape other;
  EXPECT_THROW(other.watch(integer), InvalidArgument);
  Tensor y = scalar(5);
  other.watch(y);
  EXPECT_EQ(other.gradient(y * y * y, y).item<float>(), 75);
}

TEST(GradientTape, ATapeInATapeGivesSecondDerivatives) {
  const Variable w(scalar(3));
  GradientTape outer;
  Tensor first;
  {
    GradientTape inner;
    first = inner.gradient(w * w * w, w);
  }
  EXPECT_EQ(first.item<float>(), 27);
  EXPECT_EQ(outer.gradient(first, w).item<float>(), 18);
}

TEST(GradientTape, WeighsTargetsThatAreNoScalars) {
  const Variable w(tensor({1, 2}));
  GradientTape tape({.persistent = true});
  const Tensor y = w * w;
  EXPECT_EQ(to_vector<float>(tape.gradient(y, w)), (std::vector<float>{2, 4}));
  EXPECT_EQ(to_vector<float>(tape.gradient(y, w, {.output_gradients = tensor({1, 10})})),
            (std::vector<float>{2, 40}));
  EXPECT_THROW(tape.gradient(y, w, {.output_gradients = scalar(1)}), InvalidArgument);
}

TEST(GradientTape, AFailedPassLeavesNoSlotOpen) {
  const Variable w(tensor({1, 2}));
  GradientTape tape({.persistent = true});
  const Tensor y = w * w;
  EXPECT_THROW(tape.gradient(y, std::span(&w, 1), {.output_gradients = scalar(1)}),
               InvalidArgument);
  EXPECT_FALSE(w.impl().leaf().has_open_slot());
  EXPECT_EQ(numbers(tape.gradient(y.sum(), std::span(&w, 1))[0].gradient),
            (std::vector<float>{2, 4}));
}

TEST(GradientTape, PlainLibTorchWorksBeside) {
  const Variable w(scalar(3));
  const at::AutoGradMode on(true);
  (w * w).backward();
  (w * w).backward();
  EXPECT_EQ(w.grad().item<float>(), 12);
}

TEST(ClipByGlobalNorm, ScalesInPlace) {
  const std::vector<Variable> v = {Variable(scalar(3)), Variable(scalar(4))};
  GradientTape tape;
  Gradients g = tape.gradient((v[0] * v[0] + v[1] * v[1]) / 2, v);
  const void* place = g[0].gradient.dense().data_ptr();
  g = clip_by_global_norm(std::move(g), 1);
  EXPECT_FLOAT_EQ(g[0].gradient.dense().item<float>(), 0.6F);
  EXPECT_FLOAT_EQ(g[1].gradient.dense().item<float>(), 0.8F);
  EXPECT_EQ(g[0].gradient.dense().data_ptr(), place);
  EXPECT_THROW(clip_by_global_norm(g, 0), InvalidArgument);
}

TEST(ClipByGlobalNorm, OfNoFiniteNormGivesNoNumbers) {
  const std::vector<Variable> v = {Variable(scalar(3)), Variable(scalar(4))};
  GradientTape tape;
  Gradients g = tape.gradient(v[0] * std::numeric_limits<double>::infinity() + v[1], v);
  g = clip_by_global_norm(std::move(g), 1);
  for (const GradientAndVariable& pair : g) {
    EXPECT_TRUE(std::isnan(pair.gradient.dense().item<float>()));
  }
}

TEST(ClipByGlobalNorm, OfHalfPrecisionIsFoundInFloat32) {
  const Variable v(full({10000}, 1, kFloat16));
  GradientTape tape;
  Gradients g = tape.gradient((v * 1000).sum(), {v});
  g = clip_by_global_norm(std::move(g), 1000);
  EXPECT_NEAR(g[0].gradient.dense()[0].item<float>(), 10, 0.1);
}

TEST(GradientTape, EachSourceIsListedOnce) {
  const Variable w(scalar(1));
  const std::vector<Variable> twice = {w, w};
  GradientTape tape;
  EXPECT_THROW(tape.gradient(w * w, twice), InvalidArgument);
  EXPECT_FALSE(w.impl().leaf().has_open_slot());
}

TEST(GradientTape, ATemporaryResultHandsOutCopies) {
  const Variable w(scalar(2));
  const auto gradient = [&](double factor) {
    GradientTape tape;
    return tape.gradient(w * factor, std::span(&w, 1))[0].gradient;
  };
  const Gradient a = gradient(3);
  const Gradient b = gradient(5);
  EXPECT_EQ(numbers(a), std::vector<float>{3});
  EXPECT_EQ(numbers(b), std::vector<float>{5});
}

TEST(GradientTape, RefusesUndefinedTensors) {
  Tensor x = ones({2});
  const Variable v(ones({2}));
  GradientTape tape;  // what was refused has not spent it
  tape.watch(x);
  const Tensor y = (x * v).sum();
  const GradientOptions zeros{.unconnected_gradients = UnconnectedGradients::kZero};
  expect_error<InvalidArgument>({"[gradient_tape.gradient] expected a target, got an undefined"},
                                [&] { tape.gradient(Tensor(), v); });
  expect_error<InvalidArgument>({"[gradient_tape.gradient] expected a target, got an undefined"},
                                [&] { tape.gradient(Tensor(), x); });
  expect_error<InvalidArgument>(
      {"expected tensors as sources", "undefined tensor as source 0 of 1"},
      [&] { tape.gradient(y, Tensor(), zeros); });
  expect_error<InvalidArgument>(
      {"expected tensors as sources", "undefined tensor as source 1 of 2"}, [&] {
        tape.gradient(y, {x, Tensor()});
      });
  EXPECT_THROW(tape.gradient(y, {v, Variable()}), FailedPrecondition);
  EXPECT_EQ(tape.gradient(y, x).sum().item<float>(), 2);
}

// The graph needs values that are there no more: whose they were, and what to do.
TEST(GradientTape, NamesWhatWasWrittenSince) {
  const Variable v(ones({2, 3}), {.name = "kernel"}), other(ones({3}), {.name = "bias"});
  other.assign(zeros({3}));
  other.assign(ones({3}));
  for (const bool transposed : {false, true}) {
    GradientTape tape({.persistent = true});
    const Tensor x = transposed ? Tensor(v).t() : Tensor(v);
    const Tensor y = (x * x).sum() + other.value().sum();
    v.assign(zeros({2, 3}));
    const auto refused = [&](const auto& sources) {
      expect_error<FailedPrecondition>(
          {"[gradient_tape.gradient] expected values as they were when the target was computed",
           transposed ? "got a tensor of shape [3, 2], perhaps of variable \"kernel\" (variable "
                      : "got variable \"kernel\" (variable ",
           transposed ? "" : ") of shape [2, 3], ",
           "which was written since; call gradient() before writes"},
          [&] { tape.gradient(y, sources); });
    };
    refused(v);
    refused(std::vector<Variable>{other, v});
    const Tensor anew = (v * v).sum();
    EXPECT_EQ(tape.gradient(anew, v).sum().item<float>(), 0);
  }
  const Variable one(2.0, {.name = "one"});
  GradientTape of_scalar;
  const Tensor square = one * one;
  one.assign(3);
  expect_error<FailedPrecondition>({"variable \"one\" (variable", "of shape []"},
                                   [&] { of_scalar.gradient(square, one); });
  Tensor x = ones({4});
  GradientTape tape;
  tape.watch(x);
  Tensor middle = x * 2;
  const Tensor y = (middle * middle).sum();
  {
    const GradientTape::Pause pause(tape);
    middle.detach().zero_();
  }
  expect_error<FailedPrecondition>({"got a tensor of shape [4], which was written since"},
                                   [&] { tape.gradient(y, x); });
}

// A plain tensor that was written as often is not called a variable.
TEST(GradientTape, NamesNoVariableThatWasNotWritten) {
  const Variable a(ones({4}), {.name = "a"}), b(ones({4}), {.name = "b"});
  const Variable exact(ones({4}, kFloat64), {.name = "exact"});
  const Variable square(ones({2, 2}), {.name = "square"});
  for (const Variable& v : {a, b, exact, square}) v.assign(2);
  const Tensor x = ones({4});
  const auto text_with = [&](const std::vector<Variable>& sources) {
    GradientTape tape;
    Tensor middle = x * Tensor(a) * Tensor(b);
    const Tensor y = (middle * middle).sum() + Tensor(square).sum() + Tensor(exact).sum();
    {
      const GradientTape::Pause pause(tape);
      while (middle._version() < Tensor(a)._version()) middle.detach().zero_();
    }
    return testing::error_text<FailedPrecondition>([&] { tape.gradient(y, sources); });
  };
  for (const auto& [sources, words] : std::vector<std::pair<std::vector<Variable>, std::string>>{
           {{a, square}, "got a tensor of shape [4], perhaps of one of \"a\" ("},
           {{a, b}, "got a tensor of shape [4], perhaps of one of \"a\" ("},
           {{a, exact}, "got a tensor of shape [4], perhaps of variable \"a\" ("}}) {
    testing::expect_words(text_with(sources), {words, ", which was written since"});
  }
}

}  // namespace
}  // namespace cohort
