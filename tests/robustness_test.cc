// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong in a step is a clear error or a right result, never a hang and never half an
// update: afterwards the same strategy and model train on, to the bits of a run without trouble.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>

#include "cohort/base/error.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/testing/deadline.h"
#include "tests/small_training.h"

namespace cohort::proof {
namespace {

using keras::Reduction;

constexpr auto kDeadline = std::chrono::seconds(60);
constexpr keras::Verbose kSilent = keras::Verbose::kSilent;

struct Trouble : std::runtime_error {
  Trouble() : std::runtime_error("trouble of one's own") {}
};

int replica_id() { return get_replica_context().replica_id_in_sync_group(); }

keras::Loss cross_entropy(Reduction reduction = Reduction::kSumOverBatchSize) {
  return keras::SparseCategoricalCrossentropy({.from_logits = true, .reduction = reduction});
}

std::vector<PerReplica<Element>> batches(const Strategy& strategy, int64_t steps, int64_t batch) {
  std::vector<PerReplica<Element>> out;
  const Data data = ten_classes({steps * batch, kFeatures});
  for (const auto& each : strategy.distribute_dataset(data.dataset().batch(batch))) {
    out.push_back(each);
  }
  return out;
}

// A model in a custom loop, and the places of its step where a test may interfere.
class CustomLoop {
 public:
  struct Hooks {
    std::function<void()> before_forward = [] {};
    std::function<void()> before_gradient = [] {};
    std::function<void()> before_apply = [] {};
  };

  explicit CustomLoop(Strategy strategy) : strategy_(std::move(strategy)) {
    set_seed(3);
    const auto scope = strategy_.scope();
    model_.emplace(mlp());
  }

  void step(const PerReplica<Element>& batch) { step(batch, Hooks{}); }
  void step(const PerReplica<Element>& batch, const Hooks& hooks) {
    int64_t global = 0;
    for (const Element& part : batch) global += part.rows();
    strategy_.run(
        [&](const Tensor& x, const Tensor& y) {
          hooks.before_forward();
          GradientTape tape;
          const Tensor loss = compute_average_loss(loss_(y, (*model_)(x, {.training = true})),
                                                   {.global_batch_size = global});
          hooks.before_gradient();
          const Gradients gradients = tape.gradient(loss, model_->trainable_variables());
          hooks.before_apply();
          optimizer_.apply_gradients(gradients);
        },
        batch);
  }

  const Strategy& strategy() const { return strategy_; }
  keras::Sequential& model() { return *model_; }
  const keras::Optimizer& optimizer() const { return optimizer_; }
  const keras::Loss& loss() const { return loss_; }

 private:
  const Strategy strategy_;
  std::optional<keras::Sequential> model_;
  const keras::Optimizer optimizer_ = keras::Adam();
  const keras::Loss loss_ = cross_entropy(Reduction::kNone);
};

// Trains four batches, with `trouble` after the second, and compares with a run without.
void expect_no_trace(const std::function<void(CustomLoop&, const PerReplica<Element>&)>& trouble) {
  testing::run_with_deadline(kDeadline, [&] {
    CustomLoop with(strategy_of(2)), without(strategy_of(2));
    const auto data = batches(with.strategy(), 4, 16);
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (i == 2) {
        const auto before = with.model().get_weights();
        trouble(with, data[i]);
        EXPECT_TRUE(same_bits(with.model().get_weights(), before)) << "something was written";
      }
      with.step(data[i]);
      without.step(data[i]);
    }
    EXPECT_TRUE(same_bits(with.model().get_weights(), without.model().get_weights()));
    EXPECT_EQ(with.optimizer().iterations().value().item<int64_t>(), 4);
  });
}

TEST(CustomLoop, AThrowInOneReplica) {
  for (int thrower : {0, 1}) {
    const auto throws = [thrower] {
      if (replica_id() == thrower) throw Trouble();
    };
    const CustomLoop::Hooks places[] = {
        {.before_forward = throws}, {.before_gradient = throws}, {.before_apply = throws}};
    for (const CustomLoop::Hooks& hooks : places) {
      expect_no_trace([&](CustomLoop& loop, const PerReplica<Element>& batch) {
        for (int i = 0; i < 3; ++i) EXPECT_THROW(loop.step(batch, hooks), Trouble);
      });
    }
  }
}

TEST(CustomLoop, AThrowInEveryReplica) {
  expect_no_trace([](CustomLoop& loop, const PerReplica<Element>& batch) {
    EXPECT_THROW(loop.step(batch, {.before_apply = [] { throw Trouble(); }}), Trouble);
  });
}

TEST(CustomLoop, AWrongShapeInOneReplica) {
  expect_no_trace([](CustomLoop& loop, const PerReplica<Element>& batch) {
    const Tensor x = batch[1][0].tensor(), y = batch[1][1].tensor();
    const PerReplica<Element> narrow({batch[0], Element{x.narrow(1, 0, kFeatures - 1), y}});
    EXPECT_THROW(loop.step(narrow), InvalidArgument);
    const PerReplica<Element> short_of_labels({batch[0], Element{x, y.narrow(0, 0, 3)}});
    EXPECT_THROW(loop.step(short_of_labels), std::exception);
    const PerReplica<Element> no_class({batch[0], Element{x, y + 10}});
    EXPECT_THROW(loop.step(no_class), InvalidArgument);
  });
}

TEST(CustomLoop, DifferentNumbersOfMergeCalls) {
  const auto merge = [] { get_replica_context().all_reduce(ReduceOp::kSum, 1.0); };
  expect_no_trace([&](CustomLoop& loop, const PerReplica<Element>& batch) {
    // Replica 0 meets the others once more than they meet it.
    EXPECT_THROW(loop.step(batch, {.before_forward =
                                       [&] {
                                         if (replica_id() == 0) merge();
                                       }}),
                 FailedPrecondition);
    EXPECT_THROW(loop.strategy().run([&] {
      if (replica_id() == 1) merge();
    }),
                 FailedPrecondition);
  });
}

TEST(CustomLoop, AnOptimizerInCrossReplicaContext) {
  expect_no_trace([](CustomLoop& loop, const PerReplica<Element>& batch) {
    const auto scope = loop.strategy().scope();
    GradientTape tape;
    const Tensor x = batch[0][0].tensor(), y = batch[0][1].tensor();
    const Tensor loss = loop.loss()(y, loop.model()(x)).sum();
    const Gradients gradients = tape.gradient(loss, loop.model().trainable_variables());
    EXPECT_THROW(loop.optimizer().apply_gradients(gradients), FailedPrecondition);
  });
}

// The gradients of the first replica, on the host, or nothing if LibTorch refused.
std::optional<std::vector<Tensor>> gradients_of(CustomLoop& loop, const PerReplica<Element>& batch,
                                                const std::function<void()>& between) {
  try {
    const auto all = loop.strategy().run(
        [&](const Tensor& x, const Tensor& y) {
          GradientTape tape;
          const Tensor loss = loop.loss()(y, loop.model()(x, {.training = true})).sum();
          between();
          std::vector<Tensor> out;
          for (const auto& pair : tape.gradient(loss, loop.model().trainable_variables())) {
            out.push_back(Tensor(pair.gradient).clone());
          }
          return out;
        },
        batch);
    return all[0];
  } catch (const std::exception& error) {  // c10::Error
    EXPECT_NE(std::string(error.what()).find("which was written since"), std::string::npos)
        << error.what();
    return {};
  }
}

TEST(CustomLoop, WeightsChangedBetweenForwardAndBackward) {
  expect_no_trace([](CustomLoop& loop, const PerReplica<Element>& batch) {
    const auto weights = loop.model().get_weights();
    const auto right = gradients_of(loop, batch, [] {});
    ASSERT_TRUE(right);
    int refused = 0;
    for (const Variable& weight : loop.model().trainable_variables()) {
      const auto after = gradients_of(loop, batch, [&] { weight.assign(Tensor(weight) * 2); });
      if (after) {
        EXPECT_TRUE(same_bits(*after, *right)) << weight.name();
      }
      refused += after ? 0 : 1;
      loop.model().set_weights(weights);
    }
    EXPECT_GT(refused, 0);  // of the later layers' kernels, which backward reads
  });
}

TEST(CustomLoop, AnUpdateBetweenForwardAndBackward) {
  testing::run_with_deadline(kDeadline, [] {
    CustomLoop loop(strategy_of(2));
    const auto data = batches(loop.strategy(), 3, 16);
    loop.step(data[0]);
    const auto weights = loop.model().get_weights();
    const auto right = gradients_of(loop, data[1], [] {});
    ASSERT_TRUE(right);
    const auto after = gradients_of(loop, data[1], [&] {
      std::vector<GradientAndVariable> pairs;
      for (const Variable& w : loop.model().trainable_variables()) {
        pairs.push_back({Gradient(ones(w.shape())), w});
      }
      loop.optimizer().apply_gradients(Gradients(std::move(pairs)));
    });
    EXPECT_FALSE(same_bits(loop.model().get_weights(), weights));
    if (after) {
      EXPECT_TRUE(same_bits(*after, *right));
    }
    loop.step(data[2]);
    for (const Tensor& w : loop.model().get_weights()) {
      EXPECT_TRUE(w.isfinite().all().item<bool>());
    }
  });
}

TEST(CustomLoop, ABatchSmallerThanTheReplicas) {
  testing::run_with_deadline(kDeadline, [] {
    CustomLoop one(strategy_of(1)), four(strategy_of(4));
    const auto whole = batches(one.strategy(), 20, 1), split = batches(four.strategy(), 20, 1);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(split[i][3].rows(), 0);
      one.step(whole[i]);
      four.step(split[i]);
    }
    EXPECT_LE(worst_difference(four.model().get_weights(), one.model().get_weights()), 1e-6);
  });
}

// What train_step does before it goes on as usual; batches count from 0 on each replica.
struct Net : keras::Model {
  keras::Dense hidden = add("hidden", keras::Dense(32, {.activation = "relu"}));
  keras::Dense out = add("out", keras::Dense(10));
  std::function<void(const Element&)> before_step = [](const Element&) {};
  bool guard = false;

  Tensor call(const Tensor& x, const keras::CallArgs& args) override {
    return out(hidden(x, args), args);
  }
  keras::Logs train_step(const Element& batch) override {
    before_step(batch);
    if (!guard) return Model::train_step(batch);
    const auto [x, y, weight] = keras::unpack_x_y_sample_weight(batch);
    GradientTape tape;
    const Tensor y_pred = (*this)(x, {.training = true});
    const Tensor loss = compute_loss(x, y, y_pred, weight);
    if (std::isnan(loss.item<double>())) throw Trouble();
    optimizer().apply_gradients(tape.gradient(loss, trainable_variables()));
    return compute_metrics(x, y, y_pred, weight);
  }
};

struct Fitted {
  Strategy strategy;
  std::optional<Net> net;

  explicit Fitted(int replicas) : strategy(strategy_of(replicas)) {
    set_seed(3);
    const auto scope = strategy.scope();
    net.emplace();
    net->compile({.optimizer = keras::Adam(), .loss = cross_entropy(), .metrics = {"accuracy"}});
  }
  void fit(const Data& data, int64_t batch = 16, std::vector<keras::Callback> callbacks = {}) {
    net->fit(data.dataset().batch(batch), {.callbacks = std::move(callbacks), .verbose = kSilent});
  }
  std::vector<Tensor> weights() const { return net->get_weights(); }
};

// The first three of six batches, then all six: what a fit that fails in its fourth step and is
// then repeated comes to.
std::vector<Tensor> three_and_six(const Data& data) {
  Fitted clean(2);
  clean.fit({data.x.narrow(0, 0, 48), data.y.narrow(0, 0, 48)});
  clean.fit(data);
  return clean.weights();
}

TEST(Fit, AThrowInOneReplica) {
  testing::run_with_deadline(kDeadline, [] {
    const Data data = ten_classes({96, kFeatures});
    const auto expected = three_and_six(data);
    for (int thrower : {0, 1}) {
      Fitted fitted(2);
      std::vector<int> steps(2, 0);
      fitted.net->before_step = [&](const Element&) {
        const int me = replica_id();
        if (++steps[static_cast<std::size_t>(me)] == 4 && me == thrower) throw Trouble();
      };
      EXPECT_THROW(fitted.fit(data), Trouble);
      fitted.net->before_step = [](const Element&) {};
      fitted.fit(data);
      EXPECT_TRUE(same_bits(fitted.weights(), expected)) << thrower;
    }
  });
}

TEST(Fit, ANanGuardOfTheTrainStep) {
  testing::run_with_deadline(kDeadline, [] {
    const Data data = ten_classes({96, kFeatures});
    Data bad{data.x.clone(), data.y};
    bad.x.select(0, 60).fill_(std::nan(""));  // a row of the fourth batch, on replica 1
    Fitted fitted(2);
    fitted.net->guard = true;
    EXPECT_THROW(fitted.fit(bad), Trouble);
    fitted.fit(data);
    EXPECT_TRUE(same_bits(fitted.weights(), three_and_six(data)));
  });
}

TEST(Fit, AThrowOfACallbackOrOfThePipeline) {
  testing::run_with_deadline(kDeadline, [] {
    const Data data = ten_classes({96, kFeatures});
    const auto expected = three_and_six(data);
    Fitted by_callback(2);
    EXPECT_THROW(by_callback.fit(data, 16,
                                 {keras::LambdaCallback({.on_train_batch_end =
                                                             [](int64_t step, keras::Logs&) {
                                                               if (step == 2) throw Trouble();
                                                             }})}),
                 Trouble);
    by_callback.fit(data);
    EXPECT_TRUE(same_bits(by_callback.weights(), expected));

    Fitted by_pipeline(2);
    const Dataset throwing =
        data.dataset().batch(16).enumerate().map([](const Element& numbered) -> Element {
          if (numbered[0].tensor().item<int64_t>() == 3) throw std::runtime_error("no such row");
          return numbered[1];
        });
    EXPECT_THROW(by_pipeline.net->fit(throwing.prefetch(), {.verbose = kSilent}), std::exception);
    by_pipeline.fit(data);
    EXPECT_TRUE(same_bits(by_pipeline.weights(), expected));
  });
}

TEST(Fit, ABatchSmallerThanTheReplicas) {
  testing::run_with_deadline(kDeadline, [] {
    const Data data = ten_classes({20, kFeatures});
    Fitted one(1);
    one.fit(data, 1);  // draws the weights: before another model draws its own
    Fitted four(4);
    four.fit(data, 1);
    EXPECT_LE(worst_difference(four.weights(), one.weights()), 1e-6);
    const double loss =
        four.net->evaluate(data.dataset().batch(1), {.verbose = kSilent}).number("loss");
    EXPECT_TRUE(std::isfinite(loss));
  });
}

// A strategy of one replica is no thread of its own: a server asks for gradients from many.
TEST(OneReplicaOfManyThreads, GetsEachThreadsGradients) {
  const OneDeviceStrategy one("CPU:0");
  for (const Strategy& strategy : {get_strategy(), Strategy(one)}) {
    const auto scope = strategy.scope();
    keras::Dense layer(3);
    layer(ones({2, 4}));
    std::atomic<int> wrong = 0;
    const auto ask = [&](int factor) {
      for (int again = 0; again < 300; ++again) {
        GradientTape tape;
        const Tensor y = layer(full({2, 4}, factor));
        const Gradients got = tape.gradient(y.sum(), layer.trainable_variables());
        const bool right = got[0].gradient.as_tensor().equal(full({4, 3}, 2 * factor)) &&
                           got[1].gradient.as_tensor().equal(full({3}, 2));
        if (!right) ++wrong;
      }
    };
    std::vector<std::future<void>> threads;
    for (int t = 1; t <= 4; ++t) threads.push_back(std::async(std::launch::async, ask, t));
    for (std::future<void>& thread : threads) EXPECT_NO_THROW(thread.get());
    EXPECT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace cohort::proof
