// SPDX-License-Identifier: Apache-2.0
//
// Gradients that a program keeps: their numbers stay, whatever is computed next.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "cohort/autograd/gradient_tape.h"
#include "cohort/base/sanitizers.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/update_rules/rules.h"
#include "cohort/variables/fused_update.h"

namespace cohort {
namespace {

using internal::variables::FusedUpdate;
using update_rules::SgdStep;

MirroredStrategy two() { return MirroredStrategy(std::vector<Device>{"CPU:0", "CPU:1"}); }

/// A variable whose gradient is `factor`.
Gradients gradient_of(const Variable& v, double factor) {
  GradientTape tape;
  const Tensor loss = (v * factor).sum();
  return tape.gradient(loss, std::span(&v, 1));
}
Gradients gradient_of(const std::vector<Variable>& all, double factor) {
  GradientTape tape;
  Tensor loss = scalar(0);
  for (const Variable& v : all) loss = loss + (v * factor).sum();
  return tape.gradient(loss, all);
}

float first(const Tensor& t) { return t.reshape({-1})[0].item<float>(); }

TEST(KeptGradients, AddUpOverMicroBatches) {
  const Variable v(zeros({3}));
  Tensor sum;
  for (const double g : {1.0, 2.0, 3.0}) {
    const Gradients gradients = gradient_of(v, g);
    const Tensor x = gradients[0].gradient;
    sum = sum.defined() ? sum + x : x;
  }
  EXPECT_EQ(to_vector<float>(sum), (std::vector<float>{6, 6, 6}));
}

TEST(KeptGradients, StayWhatTheyWereInAnyForm) {
  const Variable v(zeros({3}));
  std::vector<Gradients> whole, own;
  std::vector<Tensor> handles, detached, views, singles;
  for (const double g : {1.0, 2.0, 3.0}) {
    whole.push_back(gradient_of(v, g));
    own.push_back(Gradients({{gradient_of(v, g)[0].gradient, v}}));
    handles.push_back(gradient_of(v, g)[0].gradient);
    detached.push_back(gradient_of(v, g)[0].gradient.dense().detach());
    views.push_back(gradient_of(v, g)[0].gradient.dense().narrow(0, 1, 1));
    GradientTape tape;
    singles.push_back(tape.gradient((v * g).sum(), v));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto expected = static_cast<float>(i + 1);
    EXPECT_EQ(first(whole[i][0].gradient), expected);
    EXPECT_EQ(first(own[i][0].gradient), expected);
    for (const auto* kept : {&handles, &detached, &views, &singles}) {
      EXPECT_EQ(first((*kept)[i]), expected);
    }
  }
}

TEST(KeptGradients, LeaveTheRunOfEveryReplica) {
  const MirroredStrategy strategy = two();
  const auto scope = strategy.scope();
  const Variable v(zeros({3}));
  const auto step = [&](double g) -> Tensor {
    const double own = g + 10 * get_replica_context().replica_id_in_sync_group();
    const Gradients gradients = gradient_of(v, own);
    return Tensor(gradients[0].gradient);
  };
  const PerReplica<Tensor> one = strategy.run(step, 1.0);
  const PerReplica<Tensor> two = strategy.run(step, 2.0);
  EXPECT_EQ(first(one[0]), 1);
  EXPECT_EQ(first(one[1]), 11);
  EXPECT_EQ(first(two[0]), 2);
  EXPECT_EQ(first(two[1]), 12);
}

TEST(KeptGradients, AreNotClippedWithTheOnesThatAreApplied) {
  const Variable v(zeros({4}));
  const Gradients before = gradient_of(v, 3);
  const Gradients clipped = clip_by_global_norm(before, 1);
  EXPECT_EQ(first(before[0].gradient), 3);
  EXPECT_FLOAT_EQ(first(clipped[0].gradient), 0.5);
  const Tensor kept = clipped[0].gradient;
  const Gradients again = clip_by_global_norm(gradient_of(v, 5), 1);
  EXPECT_FLOAT_EQ(first(kept), 0.5);
  EXPECT_FLOAT_EQ(first(again[0].gradient), 0.5);
}

TEST(KeptGradients, MayBeChangedInPlace) {
  const Variable v(zeros({3}));
  Tensor kept = gradient_of(v, 1)[0].gradient;
  kept.unsqueeze_(0).mul_(10);
  EXPECT_EQ(first(gradient_of(v, 2)[0].gradient), 2);
  EXPECT_EQ(first(kept), 10);
  kept = Tensor();
  const Gradients next = gradient_of(v, 3);
  EXPECT_EQ(to_vector<float>(next[0].gradient), (std::vector<float>{3, 3, 3}));
}

/// What ten steps make of two variables, if the program keeps `keep` of a step's gradients.
template <class F>
std::vector<float> trained(const F& keep) {
  const MirroredStrategy strategy = two();
  const auto scope = strategy.scope();
  const std::vector<Variable> all = {Variable(ones({5, 7})), Variable(ones({3}))};
  FusedUpdate update(all, {.clipnorm = 20});
  for (int step = 0; step < 10; ++step) {
    strategy.run([&] {
      const int replica = get_replica_context().replica_id_in_sync_group();
      Gradients gradients = gradient_of(all, 0.1 * step + replica);
      keep(replica, gradients);
      update.apply(gradients, SgdStep{.learning_rate = 0.3});
    });
  }
  std::vector<float> out = to_vector<float>(all[0].value());
  for (const float x : to_vector<float>(all[1].value())) out.push_back(x);
  return out;
}

TEST(KeptGradients, TrainAsThoseThatNobodyKeeps) {
  const std::vector<float> expected = trained([](int, Gradients&) {});
  std::vector<std::vector<Tensor>> some(2);
  EXPECT_EQ(expected, trained([&](int replica, Gradients& g) {
              some[static_cast<std::size_t>(replica)].push_back(g[1].gradient);
            }));
  for (std::size_t step = 0; step < 10; ++step) {
    EXPECT_FLOAT_EQ(first(some[0][step]), 0.1F * static_cast<float>(step));
    EXPECT_FLOAT_EQ(first(some[1][step]), 0.1F * static_cast<float>(step) + 1);
  }
  std::vector<std::vector<Gradients>> all(2);
  EXPECT_EQ(expected, trained([&](int replica, Gradients& g) {
              all[static_cast<std::size_t>(replica)].push_back(g);
            }));
  // Copies of the tensors in place of what the tape has returned.
  EXPECT_EQ(expected, trained([&](int, Gradients& g) {
              std::vector<GradientAndVariable> pairs;
              for (auto& [gradient, variable] : g)
                pairs.push_back({gradient.dense() * 1, variable});
              g = Gradients(std::move(pairs));
            }));
}

TEST(KeptGradients, MayBeReadOnAnotherThreadWhileTrainingGoesOn) {
  const Variable v(zeros({64}));
  std::atomic<bool> wrong{false};
  for (int step = 1; step <= 50; ++step) {
    Tensor kept = gradient_of(v, step)[0].gradient;
    std::thread reader([&wrong, step, kept = std::move(kept)]() mutable {
      for (int i = 0; i < 20; ++i) {
        if (kept.min().item<float>() != static_cast<float>(step)) wrong = true;
      }
      kept = Tensor();
    });
    for (int i = 0; i < 5; ++i) gradient_of(v, -1);
    reader.join();
  }
  EXPECT_FALSE(wrong);
}

// Bytes of this process: reserved and in memory.
std::pair<int64_t, int64_t> memory() {
  std::ifstream file("/proc/self/statm");
  int64_t reserved = 0;
  int64_t resident = 0;
  file >> reserved >> resident;
  return {reserved * sysconf(_SC_PAGESIZE), resident * sysconf(_SC_PAGESIZE)};
}

TEST(KeptGradients, CostTheirOwnBytesAndNoArenas) {
#if COHORT_ADDRESS_SANITIZER
  GTEST_SKIP() << "AddressSanitizer keeps memory that was freed";
#endif
  constexpr int64_t kBig = int64_t{1} << 20;
  const std::vector<Variable> all = {Variable(zeros({kBig})), Variable(zeros({8}))};
  const auto gradients = [&] { return gradient_of(all, 1); };
  std::vector<Gradients> few;
  for (int i = 0; i < 6; ++i) few.push_back(gradients());
  const auto [reserved, resident] = memory();
  std::vector<Tensor> biases;
  for (int i = 0; i < 100; ++i) biases.push_back(gradients()[1].gradient);
  EXPECT_LT(memory().second - resident, 100 * kBig) << "of 400 for each whole buffer";
  for (int i = 0; i < 20; ++i) few.push_back(gradients());
  EXPECT_LT(memory().first - reserved, 40 * 4 * kBig);
}

TEST(KeptGradients, OthersUseTheSameMemoryAgain) {
  const Variable v(zeros({3}));
  const void* const place = gradient_of(v, 1)[0].gradient.dense().data_ptr();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(gradient_of(v, 1)[0].gradient.dense().data_ptr(), place);
  }
  Tensor kept = gradient_of(v, 1)[0].gradient;
  EXPECT_NE(gradient_of(v, 2)[0].gradient.dense().data_ptr(), place);
  kept = Tensor();
  EXPECT_EQ(gradient_of(v, 2)[0].gradient.dense().data_ptr(), place);
}

TEST(KeptGradients, ThatAProgramTransposedAreAppliedAsTheyRead) {
  const Variable v(zeros({2, 2}));
  GradientTape tape;
  const Tensor factors = tensor({1, 2, 3, 4}).reshape({2, 2});
  const Gradients gradients = tape.gradient((v * factors).sum(), std::span(&v, 1));
  Tensor kept = gradients[0].gradient;
  kept.t_();
  FusedUpdate update({v}, {});
  update.apply(Gradients({{kept, v}}), SgdStep{.learning_rate = 1});
  EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{-1, -3, -2, -4}));
}

TEST(KeptGradients, OfOneVariableTwiceAreRefusedBeforeAnythingIsWritten) {
  const Variable v(zeros({3}));
  const Variable w(zeros({3}));
  FusedUpdate update({v, w}, {});
  EXPECT_THROW(update.apply(Gradients({{ones({3}), v}, {ones({3}), v}}), SgdStep{}),
               InvalidArgument);
  EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{0, 0, 0}));
}

TEST(KeptGradients, ThatWereMadeOutsideOfARunServeAllReplicas) {
  const MirroredStrategy strategy = two();
  const auto scope = strategy.scope();
  const Variable v(zeros({3}));
  FusedUpdate update({v}, {});
  for (int step = 0; step < 50; ++step) {
    GradientTape tape;
    const auto losses = strategy.run([&] { return (v * 2.0).sum(); });
    const Tensor loss = strategy.reduce(ReduceOp::kSum, losses);
    const Gradients gradients = tape.gradient(loss, std::span(&v, 1));
    strategy.run([&] { update.apply_own(gradients, SgdStep{.learning_rate = 0.25}); });
  }
  for (const Variable& part : v.components()) EXPECT_EQ(first(part.value()), -50);
}

}  // namespace
}  // namespace cohort
