// SPDX-License-Identifier: Apache-2.0
#include "cohort/variables/rounded_update.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/variables/fused_update.h"
#include "cohort/variables/test_exchange.h"

namespace cohort::internal::variables {
namespace {

using namespace update_rules;

constexpr std::size_t kSize = 2500;  // more than a chunk, and no multiple of one

std::vector<Rule> every_rule() {
  double product = 1;
  return {SgdStep{},
          MomentumStep{},
          MomentumStep{.nesterov = true},
          adam_step({}, 3),
          AdamStep{.amsgrad = true},
          RmspropStep{},
          RmspropStep{.momentum = 0.5, .centered = true},
          AdagradStep{},
          AdadeltaStep{},
          adamax_step({}, 3),
          nadam_step({}, 3, product),
          FtrlStep{.l1 = 0.01},
          FtrlStep{.learning_rate_power = -0.4, .l2 = 0.1},
          LionStep{}};
}

template <class T>
std::vector<T> numbers(double phase, double scale, double shift = 0) {
  std::vector<T> out(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    out[i] = static_cast<T>(
        static_cast<float>(std::sin(0.37 * static_cast<double>(i) + phase) * scale + shift));
  }
  return out;
}
template <class T>
std::vector<float> wide(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}
template <class T>
void expect_rounded(const std::vector<T>& got, const std::vector<float>& exact, std::size_t begin,
                    std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    ASSERT_EQ(got[i].x, static_cast<T>(exact[i]).x) << i << ": " << exact[i];
  }
}

template <class T>
struct State {
  std::vector<T> p = numbers<T>(0, 1), a = numbers<T>(1, 0.1, 0.2), b = numbers<T>(2, 0.1, 0.2),
                 c = numbers<T>(3, 0.1, 0.2);
  Target<T> target() { return {.param = p.data(), .slots = {a.data(), b.data(), c.data()}}; }
};

template <class T>
class RoundedUpdate : public ::testing::Test {};
using Types = ::testing::Types<c10::Half, c10::BFloat16>;
TYPED_TEST_SUITE(RoundedUpdate, Types);

// The rule of float32 on the widened numbers and the sum of widened gradients, rounded once.
TYPED_TEST(RoundedUpdate, IsFloat32sRoundedOnce) {
  using T = TypeParam;
  const std::vector<T> g0 = numbers<T>(4, 0.5), g1 = numbers<T>(5, 0.25);
  const T* const narrow_sources[] = {g0.data(), g1.data()};
  const std::vector<float> wide0 = wide(g0), wide1 = wide(g1);
  const float* const sources[] = {wide0.data(), wide1.data()};
  const UpdateOptions how{.gradient_scale = 0.7, .clip_value = 0.3, .weight_decay = 0.01};
  for (const Rule& rule : every_rule()) {
    SCOPED_TRACE(rule.index());
    State<T> got;
    std::vector<float> p = wide(got.p), a = wide(got.a), b = wide(got.b), c = wide(got.c);
    fused_update<float>(rule, {.param = p.data(), .slots = {a.data(), b.data(), c.data()}}, sources,
                        3, kSize, how);
    apply_elements<T>(rule, got.target(), narrow_sources, 3, kSize, how);
    expect_rounded(got.p, p, 0, kSize);
    expect_rounded(got.a, a, 0, kSize);
    expect_rounded(got.b, b, 0, kSize);
    expect_rounded(got.c, c, 0, kSize);
  }
}

TYPED_TEST(RoundedUpdate, AnySplitAndAnyPlaceGiveTheSameBits) {
  using T = TypeParam;
  const std::vector<T> g = numbers<T>(4, 0.5);
  const T* const source[] = {g.data()};
  for (const Rule& rule : every_rule()) {
    SCOPED_TRACE(rule.index());
    State<T> whole, split, from, beside;
    apply_elements<T>(rule, whole.target(), source, 0, kSize, {});
    std::size_t begin = 0;
    for (const std::size_t end : {1UL, 17UL, 1030UL, 1031UL, kSize}) {
      apply_elements<T>(rule, split.target(), source, begin, end, {});
      begin = end;
    }
    Target<T> other = beside.target();
    other.from_param = from.p.data();
    other.from_slots = {from.a.data(), from.b.data(), from.c.data()};
    apply_elements<T>(rule, other, source, 0, kSize, {});
    for (const State<T>* one : {&split, &beside}) {
      expect_rounded(one->p, wide(whole.p), 0, kSize);
      expect_rounded(one->a, wide(whole.a), 0, kSize);
      expect_rounded(one->b, wide(whole.b), 0, kSize);
      expect_rounded(one->c, wide(whole.c), 0, kSize);
    }
    expect_rounded(from.p, wide(State<T>().p), 0, kSize);
  }
}

TYPED_TEST(RoundedUpdate, RowsAreTheNamedOnesAlone) {
  using T = TypeParam;
  constexpr std::size_t kWidth = 50;
  const std::vector<int64_t> rows = {1, 7, 49};
  const std::vector<T> g = numbers<T>(4, 0.5);
  for (const Rule& rule : every_rule()) {
    SCOPED_TRACE(rule.index());
    State<T> got, want;
    const State<T> before;
    apply_rows<T>(rule, got.target(), g.data(), rows, kWidth, {});
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::size_t begin = static_cast<std::size_t>(rows[r]) * kWidth;
      std::vector<T> placed(kSize);
      std::copy_n(g.begin() + static_cast<std::ptrdiff_t>(r * kWidth), kWidth,
                  placed.begin() + static_cast<std::ptrdiff_t>(begin));
      const T* const source[] = {placed.data()};
      apply_elements<T>(rule, want.target(), source, begin, begin + kWidth, {});
    }
    expect_rounded(got.p, wide(want.p), 0, kSize);
    expect_rounded(got.a, wide(want.a), 0, kSize);
    expect_rounded(got.p, wide(before.p), 0, kWidth);
  }
}

TYPED_TEST(RoundedUpdate, SquaresAreThoseOfTheWidenedSum) {
  using T = TypeParam;
  const std::vector<T> g0 = numbers<T>(4, 300), g1 = numbers<T>(5, 200);
  const T* const sources[] = {g0.data(), g1.data()};
  double exact = 0;
  for (std::size_t i = 5; i < kSize; ++i) {
    const float sum = static_cast<float>(g0[i]) + static_cast<float>(g1[i]);
    exact += static_cast<double>(sum) * sum;
  }
  // In float16 a square of 300 is infinite.
  EXPECT_NEAR(squares_of_elements<T>(sources, 5, kSize), exact, exact * 1e-12);
  std::vector<double> blocks(square_sum_blocks(kSize));
  block_squares_of_elements<T>(sources, kSize, 0, blocks);
  EXPECT_NEAR(blocks[0], squares_of_elements<T>(sources, 0, kSize), exact * 1e-12);
}

TYPED_TEST(RoundedUpdate, WhatIsNotANumberStaysOneElements) {
  using T = TypeParam;
  State<T> got;
  std::vector<T> g = numbers<T>(4, 0.5);
  g[7] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  g[9] = static_cast<T>(std::numeric_limits<float>::infinity());
  const T* const source[] = {g.data()};
  apply_elements<T>(SgdStep{}, got.target(), source, 0, kSize, {});
  for (std::size_t i = 0; i < kSize; ++i) {
    ASSERT_EQ(std::isfinite(static_cast<float>(got.p[i])), i != 7 && i != 9) << i;
  }
  EXPECT_THROW(apply_elements<T>(SgdStep{}, got.target(), {}, 0, 1, {}), InvalidArgument);
  EXPECT_THROW(
      apply_elements<T>(LionStep{}, {.param = got.p.data(), .slots = {}}, source, 0, 1, {}),
      InvalidArgument);
}

// Small steps that bfloat16 alone would lose behind the first rounding are not lost within one.
TEST(RoundedUpdates, OfBfloat16AdamMoves) {
  std::vector<c10::BFloat16> p(8, c10::BFloat16(0.5F)), m(8), v(8), g(8, c10::BFloat16(0.25F));
  const c10::BFloat16* const source[] = {g.data()};
  for (int step = 1; step <= 20; ++step) {
    apply_elements<c10::BFloat16>(adam_step({.learning_rate = 0.01}, step),
                                  {.param = p.data(), .slots = {m.data(), v.data()}}, source, 0, 8,
                                  {});
  }
  EXPECT_NEAR(static_cast<float>(p[0]), 0.5 - 20 * 0.01, 0.03);
}

// Replicas and workers: all copies are equal, and near those of float32.
class RoundedTraining : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, RoundedTraining, ::testing::Values(kFloat16, kBFloat16),
                         [](const auto& one) { return std::string(dtype_name(one.param)); });

std::vector<double> trained(DType dtype, int workers, int replicas, UpdateSchedule schedule,
                            ParameterPlacement placement, UpdaterOptions options) {
  options.slot_initial = {0, 0};
  collectives::TestJob job(collectives::Carrier::kThreads, workers);
  std::vector<std::vector<double>> all(static_cast<std::size_t>(workers));
  job.run([&](collectives::Communicator& c) {
    runtime::ReplicaGroup group({.replicas = replicas});
    LocalVariablesOptions local{.devices = {}, .schedule = schedule, .placement = placement};
    if (workers > 1) local.communicator = job.share(c.rank());
    for (int r = 0; r < replicas; ++r) local.devices.emplace_back(str_cat("CPU:", r));
    const auto creator = std::make_shared<LocalVariables>(local);
    const VariableCreatorScope scope(creator);
    std::vector<Variable> variables;
    for (const int64_t size : {37, 1, 1000, 16}) {
      variables.emplace_back((arange(size, kFloat64) * 0.01).sin().to(dtype),
                             VariableOptions{.name = str_cat("v", size)});
    }
    const auto update = creator->make_updater(variables, options);
    for (int step = 0; step < 5; ++step) {
      group.run([&](int r) {
        std::vector<GradientAndVariable> pairs;
        for (const Variable& v : variables) {
          const double phase = 1.3 * (c.rank() * replicas + r) + step;
          const Tensor g = (arange(v.impl().numel(), kFloat64) * 0.37 + phase).sin();
          pairs.push_back({g.to(dtype), v});
        }
        update->apply(Gradients(std::move(pairs)), adam_step({.learning_rate = 0.01}, step + 1),
                      0.001);
      });
    }
    auto& mine = all[static_cast<std::size_t>(c.rank())];
    for (const Variable& v : variables) {
      const std::vector<Variable> parts = v.components();
      for (const Variable& part : parts) {
        EXPECT_EQ(to_vector<double>(part.value()), to_vector<double>(parts[0].value()));
      }
      for (const double x : to_vector<double>(v.value())) mine.push_back(x);
    }
  });
  for (const auto& one : all) EXPECT_EQ(one, all[0]);
  return all[0];
}

TEST_P(RoundedTraining, CopiesStayEqualAndNearFloat32s) {
  // Adam's steps of 0.01 are as long where gradients nearly cancel: which way is up to rounding.
  const double most = GetParam() == kFloat16 ? 2.1e-2 : 6e-2;
  for (const UpdaterOptions& options : {UpdaterOptions{}, UpdaterOptions{.clipnorm = 1.5},
                                        UpdaterOptions{.global_clipnorm = 2.0}}) {
    for (const auto& size : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}}) {
      const int workers = size.first, replicas = size.second;
      SCOPED_TRACE(str_cat(workers, " workers of ", replicas));
      const auto by = [&](DType dtype, UpdateSchedule schedule, ParameterPlacement placement) {
        return trained(dtype, workers, replicas, schedule, placement, options);
      };
      const auto mirrored = ParameterPlacement::kMirrored;
      const auto exact = by(kFloat32, UpdateSchedule::kPull, mirrored);
      const auto pull = by(GetParam(), UpdateSchedule::kPull, mirrored);
      for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(pull[i], exact[i], most) << i;
      EXPECT_EQ(by(GetParam(), UpdateSchedule::kSharded, mirrored), pull);
      if (workers > 1) continue;
      EXPECT_EQ(by(GetParam(), UpdateSchedule::kSharded, ParameterPlacement::kCentral), pull);
    }
  }
}

}  // namespace
}  // namespace cohort::internal::variables
