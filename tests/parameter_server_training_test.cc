// SPDX-License-Identifier: Apache-2.0
//
// A program of Keras whose variables are on parameter servers: the same numbers as in one process,
// and, with several workers, a loss that falls.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cohort/cohort.h"
#include "cohort/coordinator/parameters/test_servers.h"
#include "cohort/keras/test_word_means.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::internal::coordinator::TestServers;
using cohort::testing::WordMeans;

Sequential make_model() {
  clear_session();
  return Sequential({std::make_shared<WordMeans>(), Dense(6, {.activation = "tanh"}),
                     BatchNormalization(), Dense(1)});
}

const Tensor kWords = (arange(96) * 7).remainder(50).reshape({32, 3});
const Tensor kTruth = (arange(32).to(kFloat32) * 0.4).sin().reshape({32, 1});

struct Outcome {
  std::vector<std::vector<float>> weights, state;
  std::vector<double> losses;
};

Outcome train(const Strategy& strategy, const Optimizer& optimizer) {
  set_seed(3);
  const auto scope = strategy.scope();
  Sequential model = make_model();
  model.compile({.optimizer = optimizer, .loss = MeanSquaredError(), .metrics = {"mae"}});
  const History history = model.fit(Dataset::from_tensor_slices({kWords, kTruth}).batch(8),
                                    {.epochs = 3, .verbose = Verbose::kSilent});
  Outcome out;
  for (const Tensor& w : model.get_weights()) out.weights.push_back(to_vector<float>(w));
  for (const Variable& v : optimizer.variables()) {
    out.state.push_back(to_vector<float>(v.value().to(kFloat32)));
  }
  out.losses = history["loss"];
  out.losses.push_back(history["mae"].back());
  const Logs evaluated = model.evaluate(Dataset::from_tensor_slices({kWords, kTruth}).batch(16),
                                        {.verbose = Verbose::kSilent});
  out.losses.push_back(evaluated.number("loss"));
  EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 12);
  return out;
}

TEST(ParameterServers, AModelTrainsToTheNumbersOfOneProcess) {
  for (const bool lazy : {false, true}) {
    const auto make = [&] { return Adam({.learning_rate = 0.05, .lazy_rows = lazy}); };
    const Outcome here = train(OneDeviceStrategy("CPU:0"), make());
    const TestServers servers(2);
    const Outcome there = train(servers.coordinator(), make());
    EXPECT_EQ(there.weights, here.weights);
    EXPECT_EQ(there.state, here.state);
    EXPECT_EQ(there.losses, here.losses);
  }
}

// Averages of the weights, and gradients that are summed: with one worker the numbers of one
// process, but for rounding.
TEST(ParameterServers, AveragesWeightsAndAccumulatesGradients) {
  const auto make = [] {
    return Adam({.learning_rate = 0.05,
                 .use_ema = true,
                 .ema_momentum = 0.8,
                 .gradient_accumulation_steps = 2});
  };
  const auto steps = [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable w(from_vector(std::vector<float>{1, -2, 3}, {3}), {.name = "w"});
    const Optimizer optimizer = make();
    const Variable list[] = {w};
    for (int s = 0; s < 6; ++s) {
      strategy.run([&] {
        GradientTape tape;
        const Tensor loss = (w.value() * (s + 1)).square().sum();
        optimizer.apply_gradients(tape.gradient(loss, list));
      });
    }
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 3);
    const std::vector<float> trained = to_vector<float>(w.value());
    optimizer.finalize_variable_values();
    EXPECT_NE(to_vector<float>(w.value()), trained);
    return w.value().clone();
  };
  const Tensor here = steps(OneDeviceStrategy("CPU:0"));
  const TestServers servers(2);
  EXPECT_TRUE(steps(servers.coordinator()).allclose(here, 1e-5));
  const Strategy strategy = servers.coordinator();
  const auto scope = strategy.scope();
  const Variable list[] = {Variable(1.0, {.name = "v"})};
  cohort::testing::expect_error<Unimplemented>(
      {"ema_overwrite_frequency", "parameter servers"},
      [&] { Optimizer(Adam({.use_ema = true, .ema_overwrite_frequency = 2})).build(list); });
}

// Two workers at once, without any order between them, train what the coordinator sees.
// A question to a server is a third of what a push of rows waits for.
TEST(ParameterServers, AreAskedForTheStepOnlyWhereTheRuleNeedsIt) {
  const TestServers servers(1);
  const auto pulls_of_steps = [&](const Optimizer& optimizer) {
    const Strategy strategy = servers.coordinator();
    const auto scope = strategy.scope();
    const Variable w(2.0, {.name = "w"});
    const auto step = [&] {
      strategy.run([&] { optimizer.apply_gradients({{scalar(1.0, kFloat32), w}}); });
    };
    step();
    const auto pulls = [&] {
      return servers.calls->in_lanes("ps.pull") + servers.calls->over_grpc("ps.pull");
    };
    pulls();
    for (int i = 0; i < 4; ++i) step();
    const int count = pulls();
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 5);
    return count;
  };
  const auto falling = ExponentialDecay(0.1, 10, 0.9);
  EXPECT_EQ(pulls_of_steps(SGD()), 0);
  EXPECT_EQ(pulls_of_steps(SGD({.momentum = 0.9})), 0);
  EXPECT_EQ(pulls_of_steps(Adagrad()), 0);
  EXPECT_EQ(pulls_of_steps(SGD({.learning_rate = falling})), 4);
  EXPECT_EQ(pulls_of_steps(Adam()), 4);
  EXPECT_GT(pulls_of_steps(SGD({.use_ema = true})), 4) << "and the averages";
}

TEST(ParameterServers, WorkersTrainOneModelAtOnce) {
  const TestServers servers(2);
  constexpr int kWorkers = 2;
  constexpr int kSteps = 60;
  std::vector<double> first(kWorkers);
  std::vector<double> last(kWorkers);
  const auto work = [&](int w) {
    const Strategy strategy = servers.worker(w, kWorkers);
    const auto scope = strategy.scope();
    const Variable table(random_normal({50, 4}) * 0.1, {.name = "table"});
    const Variable head(full({4, 1}, 0.1), {.name = "head"});
    const Optimizer optimizer = Adam({.learning_rate = 0.05});
    const Variable variables[] = {table, head};
    for (int s = 0; s < kSteps; ++s) {
      const PerReplica<Tensor> loss = strategy.run([&] {
        GradientTape tape;
        const Tensor out = embedding_lookup(table, kWords).mean(1).matmul(head.value());
        const Tensor error = (out - kTruth).pow(2).mean();
        optimizer.apply_gradients(tape.gradient(error, variables));
        return error.detach();
      });
      (s == 0 ? first : last)[static_cast<std::size_t>(w)] = loss[0].item<double>();
    }
  };
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) threads.emplace_back(work, w);
  for (std::thread& each : threads) each.join();
  for (int w = 0; w < kWorkers; ++w) {
    EXPECT_LT(last[static_cast<std::size_t>(w)], 0.5 * first[static_cast<std::size_t>(w)]);
  }
  const Strategy strategy = servers.coordinator();
  const auto count =
      cohort::internal::coordinator::bind_variable(strategy, "adam/iteration", false);
  EXPECT_EQ(count.value().item<int64_t>(), kWorkers * kSteps);
}

// A small model with Adam's slots, and how its numbers lie in the strategy.
struct Trained {
  explicit Trained(const Strategy& in) : strategy(in) {
    clear_session();
    const auto scope = strategy.scope();
    model = std::make_unique<Sequential>(
        std::vector<Layer>{Dense(5, {.activation = "tanh"}), Dense(1)});
    optimizer = Adam({.learning_rate = 0.05});
    strategy.run([&] { (*model)(kInputs); });
    optimizer.build(model->trainable_variables());
  }
  void train(int steps) const {
    for (int s = 0; s < steps; ++s) {
      strategy.run([&] {
        GradientTape tape;
        const Tensor loss = (*model)(kInputs, {.training = true}).square().mean();
        optimizer.apply_gradients(tape.gradient(loss, model->trainable_variables()));
      });
    }
  }
  Checkpoint checkpoint() const {
    return Checkpoint({{"model", *model}, {"optimizer", optimizer}});
  }
  std::vector<std::vector<float>> numbers() const {
    std::vector<std::vector<float>> out;
    for (const Tensor& w : model->get_weights()) out.push_back(to_vector<float>(w));
    for (const Variable& v : optimizer.variables()) {
      out.push_back(to_vector<float>(v.value().to(kFloat32)));
    }
    return out;
  }

  static inline const Tensor kInputs = (arange(56).to(kFloat32) * 0.3).sin().reshape({8, 7});
  Strategy strategy;
  std::unique_ptr<Sequential> model;
  Optimizer optimizer;
};

class Saved : public ::testing::Test {
 protected:
  Saved() { std::filesystem::remove_all(folder_); }
  ~Saved() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  const std::string folder_ =
      ::testing::TempDir() + "/parameter_server_training_test" + std::to_string(::getpid());
};

// C9: what n servers have saved m servers restore, with each way of cutting, to the bit.
TEST_F(Saved, RestoresOnAnyNumberOfServersInAnyShards) {
  const auto cuts = [](int servers) {
    return std::vector<Partitioner>{
        fixed_shards_partitioner(servers + 1),
        min_size_partitioner({.min_shard_bytes = 8, .max_shards = servers}),
        max_size_partitioner({.max_shard_bytes = 40, .max_shards = 4})};
  };
  constexpr int kMost = 4;
  constexpr std::size_t kCuts = 3;
  const auto name = [&](int n, std::size_t cut) { return path(str_cat("from_", n, "_", cut)); };
  std::map<std::string, std::vector<std::vector<float>>> saved;
  for (int n = 1; n <= kMost; ++n) {
    const TestServers servers(n);
    for (std::size_t cut = 0; cut < kCuts; ++cut) {
      const Trained from(servers.coordinator(cuts(n)[cut]));
      from.train(n);
      from.checkpoint().save(name(n, cut));
      saved[name(n, cut)] = from.numbers();
    }
  }
  for (int m = 1; m <= kMost; ++m) {
    const TestServers servers(m);
    for (int n = 1; n <= kMost; ++n) {
      for (std::size_t cut = 0; cut < kCuts; ++cut) {
        const std::string of = name(n, (cut + 1) % kCuts);
        const Trained to(servers.coordinator(cuts(m)[cut]));
        to.checkpoint().restore(of);
        EXPECT_EQ(to.numbers(), saved[of]) << of << " on " << m << ", cut " << cut;
      }
    }
  }
}

// D8
TEST_F(Saved, RestoresFromAndIntoEveryOtherStrategy) {
  const std::vector<Strategy> others = {
      get_strategy(), OneDeviceStrategy("CPU:0"), MirroredStrategy({"CPU:0", "CPU:1"}),
      CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}})};
  const TestServers servers(2);
  const auto on_servers = [&] { return Trained(servers.coordinator(fixed_shards_partitioner(3))); };
  std::vector<std::vector<float>> saved;
  {
    const Trained from = on_servers();
    from.train(3);
    from.checkpoint().save(path("servers"));
    saved = from.numbers();
  }
  for (const Strategy& other : others) {
    const Trained into(other);
    into.checkpoint().restore(path("servers"));
    EXPECT_EQ(into.numbers(), saved) << other.extended().description();
    into.train(2);
    EXPECT_NE(into.numbers(), saved);
    into.checkpoint().save(path("other"));
    const Trained back = on_servers();
    back.checkpoint().restore(path("other"));
    EXPECT_EQ(back.numbers(), into.numbers()) << other.extended().description();
  }
}

// What is made behind the restore has the saved values from its beginning on (semantics 3.9).
TEST_F(Saved, WaitsForVariablesOnServers) {
  const TestServers servers(2);
  std::vector<std::vector<float>> saved;
  {
    const Trained from(OneDeviceStrategy("CPU:0"));
    from.train(2);
    from.checkpoint().save(path("one"));
    saved = from.numbers();
  }
  clear_session();
  const Strategy strategy = servers.coordinator(fixed_shards_partitioner(2));
  const auto scope = strategy.scope();
  Sequential model({Dense(5, {.activation = "tanh"}), Dense(1)});
  const Optimizer optimizer = Adam({.learning_rate = 0.05});
  const RestoreStatus status =
      Checkpoint({{"model", model}, {"optimizer", optimizer}}).restore(path("one"));
  EXPECT_FALSE(status.waiting().empty());
  strategy.run([&] { model(Trained::kInputs); });
  optimizer.build(model.trainable_variables());
  EXPECT_TRUE(status.waiting().empty());
  std::vector<std::vector<float>> got;
  for (const Tensor& w : model.get_weights()) got.push_back(to_vector<float>(w));
  for (const Variable& v : optimizer.variables()) {
    got.push_back(to_vector<float>(v.value().to(kFloat32)));
  }
  EXPECT_EQ(got, saved);
}

}  // namespace
}  // namespace cohort::keras
