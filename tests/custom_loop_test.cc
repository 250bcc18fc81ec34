// SPDX-License-Identifier: Apache-2.0
//
// What programs write in a step of their own, under every strategy: tapes, optimizers, networks
// that train against each other, gradients clipped, transformed, accumulated.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/testing/expect_error.h"
#include "tests/small_training.h"

namespace cohort::proof {
namespace {

using keras::Dense;
using keras::InputLayer;
using keras::Optimizer;
using Numbers = std::vector<double>;

struct Kind {
  const char* name;
  int replicas;
  Strategy (*make)();
};

Strategy mirrored(const char* schedule) {
  ::setenv("COHORT_UPDATE_SCHEDULE", schedule, 1);
  MirroredStrategy strategy({"CPU:0", "CPU:1"});
  ::unsetenv("COHORT_UPDATE_SCHEDULE");
  return strategy;
}

Strategy central() { return CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}}); }

const Kind kKinds[] = {
    {"Default", 1, [] { return get_strategy(); }},
    {"OneDevice", 1, [] { return Strategy(OneDeviceStrategy(Device("CPU:0"))); }},
    {"MirroredSharded", 2, [] { return mirrored("sharded"); }},
    {"MirroredPull", 2, [] { return mirrored("pull"); }},
    {"Central", 2, central},
};

class CustomLoop : public ::testing::TestWithParam<Kind> {
 protected:
  int replicas() const { return GetParam().replicas; }
  static int replica() { return get_replica_context().replica_id_in_sync_group(); }
  /// Every replica's copy of a variable.
  std::vector<Numbers> copies(const Variable& v) const {
    std::vector<Numbers> out;
    for (int r = 0; r < replicas(); ++r) {
      out.push_back(to_vector<double>(v.impl().leaf_of(r).tensor));
    }
    return out;
  }
  void expect_copies(const Variable& v, const Numbers& want) const {
    for (const Numbers& got : copies(v)) {
      ASSERT_EQ(got.size(), want.size()) << v.name();
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << v.name();
    }
  }

  const Strategy strategy_ = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(Every, CustomLoop, ::testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param.name); });

Numbers numbers(const Gradient& gradient) { return to_vector<double>(gradient.as_tensor()); }

TEST_P(CustomLoop, APersistentTapeGivesGradientsOfSeveralLosses) {
  const auto scope = strategy_.scope();
  const std::vector<Variable> v = {Variable(tensor({1, 2})), Variable(tensor({3, 4}))};
  strategy_.run([&] {
    const double mine = replica() + 1;
    GradientTape tape({.persistent = true});
    const Tensor product = (v[0] * v[1]).sum() * mine;
    const Tensor square = (v[0] * v[0]).sum();
    const Gradients one = tape.gradient(product, v);
    const Gradients two = tape.gradient(square, v);
    const Gradients both = tape.gradient(product + square, v);
    EXPECT_EQ(numbers(one[0].gradient), (Numbers{3 * mine, 4 * mine}));
    EXPECT_EQ(numbers(one[1].gradient), (Numbers{1 * mine, 2 * mine}));
    EXPECT_EQ(numbers(two[0].gradient), (Numbers{2, 4}));
    EXPECT_FALSE(two[1].gradient.has_value());
    EXPECT_EQ(numbers(both[0].gradient), (Numbers{3 * mine + 2, 4 * mine + 4}));
  });
}

TEST_P(CustomLoop, ATapeWatchesWhatItIsToldTo) {
  const auto scope = strategy_.scope();
  const std::vector<Variable> v = {Variable(scalar(3)), Variable(scalar(4))};
  strategy_.run([&] {
    GradientTape tape({.persistent = true, .watch_accessed_variables = false});
    tape.watch(v[1]);
    Tensor x = scalar(2);
    tape.watch(x);
    const Tensor y = v[0] * v[1] * x * x;
    const Gradients g = tape.gradient(y, v);
    EXPECT_FALSE(g[0].gradient.has_value());
    EXPECT_EQ(numbers(g[1].gradient), Numbers{12});
    EXPECT_EQ(tape.gradient(y, x).item<float>(), 48);
  });
}

TEST_P(CustomLoop, UnconnectedSourcesHaveNoneOrZeros) {
  const auto scope = strategy_.scope();
  const std::vector<Variable> v = {Variable(scalar(3)), Variable(tensor({4, 5}))};
  strategy_.run([&] {
    GradientTape tape({.persistent = true});
    const Tensor y = v[0] * v[0];
    EXPECT_FALSE(tape.gradient(y, v)[1].gradient.has_value());
    const GradientOptions zero{.unconnected_gradients = UnconnectedGradients::kZero};
    EXPECT_EQ(numbers(tape.gradient(y, v, zero)[1].gradient), (Numbers{0, 0}));
  });
}

TEST_P(CustomLoop, APausedTapeRecordsNothing) {
  const auto scope = strategy_.scope();
  const Variable w(scalar(3));
  strategy_.run([&] {
    GradientTape tape;
    Tensor constant;
    {
      const GradientTape::Pause pause(tape);
      constant = w * w;
    }
    EXPECT_EQ(tape.gradient(constant * w, w).item<float>(), 9);
  });
}

// A penalty on the gradient of the output by the input: sum(W^2), whose gradient is 2 W.
TEST_P(CustomLoop, NestedTapesPenaliseGradients) {
  const auto scope = strategy_.scope();
  keras::Sequential model({InputLayer({2}), Dense(1)});
  model.set_weights(std::vector<Tensor>{tensor({2, -3}).reshape({2, 1}), tensor({1})});
  const keras::SGD optimizer({.learning_rate = 0.25});
  strategy_.run([&] {
    Tensor x = ones({1, 2});
    GradientTape outer;
    Tensor slope;
    {
      GradientTape inner;
      inner.watch(x);
      slope = inner.gradient(model(x, {.training = true}).sum(), x);
    }
    EXPECT_EQ(to_vector<double>(slope), (Numbers{2, -3}));
    const Tensor penalty = (slope * slope).sum();
    optimizer.apply_gradients(outer.gradient(penalty, model.trainable_variables()));
  });
  const double keep = 1 - 0.5 * replicas();
  expect_copies(model.trainable_variables()[0], {2 * keep, -3 * keep});
  expect_copies(model.trainable_variables()[1], {1});
}

TEST_P(CustomLoop, SomeOfTheVariablesTrain) {
  const auto scope = strategy_.scope();
  keras::Sequential model({InputLayer({2}), Dense(2), Dense(1)});
  const std::vector<Tensor> before = model.get_weights();
  const keras::Adam optimizer({.learning_rate = 0.1});
  strategy_.run([&] {
    GradientTape tape;
    const Tensor loss = model(ones({4, 2}), {.training = true}).sum();
    const Gradients g = tape.gradient(loss, model.trainable_variables().subspan(2));
    EXPECT_EQ(g.size(), 2U);
    optimizer.apply_gradients(g);
  });
  const std::vector<Tensor> after = model.get_weights();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(after[i].equal(before[i]), i < 2) << i;
  EXPECT_EQ(optimizer.variables().size(), 5U);
}

TEST_P(CustomLoop, TwoOptimizersShareAModel) {
  const auto scope = strategy_.scope();
  keras::Sequential model({InputLayer({2}), Dense(1)});
  model.set_weights(std::vector<Tensor>{tensor({1, 2}).reshape({2, 1}), tensor({3})});
  const keras::SGD for_kernel({.learning_rate = 0.1});
  const keras::Lion for_bias({.learning_rate = 0.5});
  for (int step = 0; step < 2; ++step) {
    strategy_.run([&] {
      GradientTape tape;
      const Tensor loss = model(tensor({1, 10}).reshape({1, 2}), {.training = true}).sum();
      const Gradients g = tape.gradient(loss, model.trainable_variables());
      for_kernel.apply_gradients({{g[0]}, g.lease()});
      for_bias.apply_gradients({{g[1]}, g.lease()});
    });
  }
  expect_copies(model.trainable_variables()[0], {1 - 0.2 * replicas(), 2 - 2.0 * replicas()});
  expect_copies(model.trainable_variables()[1], {3 - 2 * 0.5});
  EXPECT_EQ(for_kernel.iterations().value().item<int64_t>(), 2);
}

// T07, and gradients that are new tensors rather than the arena's.
TEST_P(CustomLoop, T07_GradientsCanBeReplaced) {
  const auto scope = strategy_.scope();
  const std::vector<Variable> v = {Variable(tensor({1})), Variable(tensor({-1}))};
  const keras::SGD optimizer({.learning_rate = 1});
  strategy_.run([&] {
    GradientTape tape;
    Gradients g = tape.gradient((v[0] * v[1] * 7).sum(), v);
    for (auto& pair : g) pair.gradient = ones({1}) / static_cast<double>(replicas());
    optimizer.apply_gradients(g);
  });
  expect_copies(v[0], {0});
  expect_copies(v[1], {-2});
}

// One replica may be done with its copies while another still updates its own.
TEST_P(CustomLoop, GradientsMayBeWrittenOnceTheyAreApplied) {
  const auto scope = strategy_.scope();
  constexpr int64_t kSize = 1 << 20;
  constexpr int kSteps = 60;
  const std::vector<Variable> v = {Variable(zeros({kSize}))};
  const keras::SGD optimizer({.learning_rate = 1});
  for (int step = 0; step < kSteps; ++step) {
    strategy_.run([&] {
      GradientTape tape;
      Gradients g = tape.gradient((v[0] * 1.0).sum(), v);
      if (step % 3 == 0) {
        const Tensor total = g[0].gradient;
        optimizer.apply_gradients(std::move(g));
        total.narrow(0, kSize - 64, 64).zero_();
      } else if (step % 3 == 1) {
        optimizer.apply_gradients(g);
        g[0].gradient.dense().narrow(0, kSize - 64, 64).zero_();
      } else {
        optimizer.apply_gradients(g);
        clip_by_global_norm(std::move(g), 1);
      }
    });
  }
  for (int r = 0; r < replicas(); ++r) {
    const Tensor& copy = v[0].impl().leaf_of(r).tensor;
    EXPECT_EQ(copy.max().item<int>(), -kSteps * replicas()) << "replica " << r;
    EXPECT_EQ(copy.min().item<int>(), -kSteps * replicas()) << "replica " << r;
  }
}

TEST_P(CustomLoop, GradientsAreClippedOnEachReplica) {
  const auto scope = strategy_.scope();
  const std::vector<Variable> v = {Variable(scalar(0)), Variable(scalar(0))};
  const keras::SGD optimizer({.learning_rate = 1});
  strategy_.run([&] {
    GradientTape tape;
    // [3, 4] on the first replica, [30, 40] on the second: a direction of length 1 on both.
    const Tensor loss = (v[0] * 3 + v[1] * 4) * (replica() == 0 ? 1.0 : 10.0);
    optimizer.apply_gradients(clip_by_global_norm(tape.gradient(loss, v), 1));
  });
  expect_copies(v[0], {-0.6 * replicas()});
  expect_copies(v[1], {-0.8 * replicas()});
}

TEST_P(CustomLoop, ReducedGradientsAreAppliedWithoutAggregation) {
  const auto scope = strategy_.scope();
  const std::vector<Variable> by_hand = {Variable(tensor({1, 2}))};
  const std::vector<Variable> summed = {Variable(tensor({1, 2}))};
  const keras::Adam one({.learning_rate = 0.1}), two({.learning_rate = 0.1});
  for (int step = 0; step < 3; ++step) {
    strategy_.run([&] {
      const double mine = replica() + step + 1;
      GradientTape tape({.persistent = true});
      const Tensor a = (by_hand[0] * by_hand[0]).sum() * mine;
      const Tensor b = (summed[0] * summed[0]).sum() * mine;
      Gradients g = tape.gradient(a, by_hand);
      g[0].gradient = get_replica_context().all_reduce(ReduceOp::kSum, g[0].gradient.as_tensor());
      if (by_hand[0].impl().copies() < replicas()) {
        EXPECT_THROW(one.apply_gradients(g, {.skip_gradients_aggregation = true}), Unimplemented);
        return;
      }
      one.apply_gradients(g, {.skip_gradients_aggregation = true});
      two.apply_gradients(tape.gradient(b, summed));
    });
  }
  if (by_hand[0].impl().copies() < replicas()) return;
  EXPECT_EQ(copies(by_hand[0]), copies(summed[0]));
  EXPECT_EQ(copies(summed[0]).front(), copies(summed[0]).back());
}

// The sum over rows of squared errors, over `batch`.
Tensor mean_loss(keras::Sequential& model, const Tensor& x, const Tensor& y, int64_t batch) {
  const Tensor error = model(x, {.training = true}).squeeze(-1) - y;
  return compute_average_loss(error * error, {.global_batch_size = batch});
}

// Rows of this replica out of the n-th of the batches of `rows`.
Tensor part_of(const Tensor& all, int64_t n, int64_t rows, int replica, int replicas) {
  const int64_t own = rows / replicas;
  return all.narrow(0, n * rows + replica * own, own);
}

constexpr int64_t kRounds = 3, kMicro = 4, kRows = 4;

// Three updates with batches of 16 rows: at once, or four at a time in two ways.
enum class How { kAtOnce, kOption, kByHand };

std::vector<Tensor> train_linear(const Strategy& strategy, How how) {
  const auto scope = strategy.scope();
  const Data data = ten_classes({kRounds * kMicro * kRows, 3});
  const Tensor y = data.y.to(kFloat32) * 0.1;
  keras::Sequential model({InputLayer({3}), Dense(1)});
  model.set_weights(std::vector<Tensor>{tensor({0.5, -0.25, 1}).reshape({3, 1}), tensor({0.125})});
  const int replicas = strategy.num_replicas_in_sync();
  const keras::Adam optimizer(
      {.learning_rate = 0.1,
       .global_clipnorm = 0.5,
       .gradient_accumulation_steps = how == How::kOption ? static_cast<int>(kMicro) : 1});
  const int64_t rows = how == How::kAtOnce ? kMicro * kRows : kRows;
  const auto gradients = [&](int64_t n) {
    const int r = get_replica_context().replica_id_in_sync_group();
    GradientTape tape;
    const Tensor loss = mean_loss(model, part_of(data.x, n, rows, r, replicas),
                                  part_of(y, n, rows, r, replicas), rows);
    return tape.gradient(loss, model.trainable_variables());
  };
  for (int64_t round = 0; round < kRounds; ++round) {
    strategy.run([&] {
      if (how == How::kAtOnce) return optimizer.apply_gradients(gradients(round));
      if (how == How::kOption) {
        for (int64_t i = 0; i < kMicro; ++i)
          optimizer.apply_gradients(gradients(round * kMicro + i));
        return;
      }
      const Gradients first = gradients(round * kMicro);
      for (int64_t i = 1; i < kMicro; ++i) {
        const Gradients more = gradients(round * kMicro + i);  // into other memory: `first` is held
        for (std::size_t v = 0; v < first.size(); ++v) {
          Tensor(first[v].gradient.dense()).add_(more[v].gradient.dense());
        }
      }
      for (const auto& pair : first) Tensor(pair.gradient.dense()).div_(kMicro);
      optimizer.apply_gradients(first);
    });
  }
  return model.get_weights();
}

TEST_P(CustomLoop, AccumulatingEqualsALargerBatch) {
  const std::vector<Tensor> want = train_linear(get_strategy(), How::kAtOnce);
  for (const How how : {How::kAtOnce, How::kOption, How::kByHand}) {
    const std::vector<Tensor> got = train_linear(strategy_, how);
    EXPECT_LT(worst_difference(got, want), 1e-5) << static_cast<int>(how);
  }
}

struct Gan {
  keras::Sequential generator{{InputLayer({4}), Dense(16, {.activation = "relu"}), Dense(6)}};
  keras::Sequential critic{{InputLayer({6}), Dense(16, {.activation = "tanh"}), Dense(1)}};
  keras::Adam for_generator{{.learning_rate = 0.01}};
  keras::SGD for_critic{{.learning_rate = 0.05, .momentum = 0.5}};
  keras::BinaryCrossentropy loss{{.from_logits = true, .reduction = keras::Reduction::kNone}};

  void step(const Tensor& noise, const Tensor& real, int64_t batch) {
    GradientTape tape_of_generator, tape_of_critic;
    const Tensor fake = generator(noise, {.training = true});
    const Tensor on_real = critic(real, {.training = true});
    const Tensor on_fake = critic(fake, {.training = true});
    const Tensor yes = ones({real.size(0), 1}, real.scalar_type());
    const Tensor no = zeros({real.size(0), 1}, real.scalar_type());
    const AverageLossOptions mean{.global_batch_size = batch};
    const Tensor generator_loss = compute_average_loss(loss(yes, on_fake), mean);
    const Tensor critic_loss = compute_average_loss(loss(yes, on_real) + loss(no, on_fake), mean);
    const Gradients g = tape_of_generator.gradient(generator_loss, generator.trainable_variables());
    const Gradients c = tape_of_critic.gradient(critic_loss, critic.trainable_variables());
    for_generator.apply_gradients(g);
    for_critic.apply_gradients(c);
  }
};

// The weights of both networks after some steps, and before.
std::vector<Tensor> train_gan(const Strategy& strategy, int steps, DType dtype) {
  const DType before = keras::floatx();
  keras::set_floatx(dtype);
  set_seed(11);
  const auto scope = strategy.scope();
  Gan gan;
  constexpr int64_t kBatch = 8;
  const Data data = ten_classes({(steps + 1) * kBatch, 10}, dtype);
  const int replicas = strategy.num_replicas_in_sync();
  for (int n = 0; n < steps; ++n) {
    strategy.run([&] {
      const int r = get_replica_context().replica_id_in_sync_group();
      const Tensor rows = part_of(data.x, n, kBatch, r, replicas);
      gan.step(rows.narrow(1, 0, 4), rows.narrow(1, 4, 6) * 0.5 + 1, kBatch);
    });
  }
  keras::set_floatx(before);
  std::vector<Tensor> weights = gan.generator.get_weights();
  for (const Tensor& w : gan.critic.get_weights()) weights.push_back(w);
  return weights;
}

TEST_P(CustomLoop, AGanTrainsAsOnOneReplica) {
  const std::vector<Tensor> want = train_gan(get_strategy(), 10, kFloat64);
  EXPECT_LT(worst_difference(train_gan(strategy_, 10, kFloat64), want), 1e-12);
  const std::vector<Tensor> start = train_gan(get_strategy(), 0, kFloat64);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_GT((want[i] - start[i]).norm().item<double>(), 1e-2) << i;
  }
}

TEST(CustomLoops, HaveTheSameBitsUnderBothSchedulesAndOverOneCopy) {
  for (const auto& train : std::vector<std::function<std::vector<Tensor>(const Strategy&)>>{
           [](const Strategy& s) { return train_gan(s, 5, kFloat32); },
           [](const Strategy& s) { return train_linear(s, How::kOption); },
           [](const Strategy& s) { return train_linear(s, How::kByHand); }}) {
    const std::vector<Tensor> sharded = train(mirrored("sharded"));
    EXPECT_TRUE(same_bits(sharded, train(mirrored("pull"))));
    EXPECT_TRUE(same_bits(sharded, train(central())));
  }
}

TEST_P(CustomLoop, T01_T03_LossesAreScaledForTheSumOverReplicas) {
  const double n = replicas();
  strategy_.run([&] {
    const Tensor losses = tensor({1, 2, 3, 4});
    EXPECT_EQ(compute_average_loss(losses, {.global_batch_size = 8}).item<double>(), 1.25);
    EXPECT_EQ(compute_average_loss(losses).item<double>(), 10 / (4 * n));
    const AverageLossOptions weighted{.sample_weight = tensor({1, 0, 2, 0}),
                                      .global_batch_size = 2};
    EXPECT_EQ(compute_average_loss(losses, weighted).item<double>(), 3.5);
    EXPECT_EQ(compute_average_loss(zeros({0})).item<double>(), 0);
    EXPECT_EQ(compute_average_loss(losses, {.global_batch_size = 0}).item<double>(), 0);
    EXPECT_EQ(scale_regularization_loss(tensor({3, 5})).item<double>(), 8 / n);
    EXPECT_THROW(compute_average_loss(scalar(1)), InvalidArgument);
    EXPECT_THROW(compute_average_loss(losses, {.global_batch_size = -1}), InvalidArgument);
  });
}

TEST_P(CustomLoop, T04_T10_BelongIntoARun) {
  const auto scope = strategy_.scope();
  const Variable v(scalar(1));
  const keras::SGD optimizer;
  const Gradients gradients({{scalar(1), v}});
  const bool crosses = in_cross_replica_context();  // not under the default strategy
  if (crosses) {
    EXPECT_THROW(compute_average_loss(tensor({1, 2})), FailedPrecondition);
    EXPECT_THROW(scale_regularization_loss(scalar(1)), FailedPrecondition);
  }
  if (replicas() > 1) {
    testing::expect_error<FailedPrecondition>(
        {"[optimizer.apply_gradients] expected to be inside strategy.run"},
        [&] { optimizer.apply_gradients(gradients); });
  }
  EXPECT_THROW(strategy_.run([&] {
    optimizer.apply_gradients(std::vector<GradientAndVariable>{{Gradient(), v}});
  }),
               InvalidArgument);
}

}  // namespace
}  // namespace cohort::proof
