// SPDX-License-Identifier: Apache-2.0
//
// Several workers save and restore as one: whatever path each gives, the chief writes, everybody
// has what it reads, and what a worker has of its own comes back to it.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>

#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/keras.h"
#include "cohort/strategy/preemption_checkpoint_handler.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::error_text;
using cohort::testing::expect_error;
using cohort::testing::run_with_deadline;
using cohort::testing::Workers;

constexpr auto kLimit = std::chrono::seconds(90);

std::vector<Layer> layers_of_test() {
  return {InputLayer({3}), Dense(8, {.activation = "relu", .name = "hidden"}),
          Dense(1, {.name = "out"})};
}
Dataset rows_of_test(int64_t count = 24) {
  const Tensor x = (arange(count * 3).to(kFloat32) * 0.37).sin().reshape({count, 3});
  return Dataset::from_tensor_slices({x, x.sum(1, true) * 0.5 + 1});
}
int worker_of(const Strategy& strategy) { return strategy.extended().layout().worker(); }
MirroredStrategy mirrored_of(int replicas) {
  std::vector<Device> devices;
  for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
  return MirroredStrategy(devices);
}

/// A compiled model with an optimizer that has slots, and a sum that every replica keeps for
/// itself.
struct Program {
  explicit Program(const Strategy& s)
      : scope(s.scope()),
        model(layers_of_test()),
        seen(zeros({}), {.name = "seen",
                         .synchronization = Synchronization::kOnRead,
                         .aggregation = Aggregation::kSum}),
        strategy(s) {
    model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = "mse"});
  }
  void train() {
    model.fit(rows_of_test().batch(8), {.epochs = 2, .verbose = Verbose::kSilent});
    strategy.run([this] { seen.assign_add(ones({})); });
    epoch += 2;
  }
  Checkpoint checkpoint() {
    return Checkpoint({{"model", model}, {"seen", seen}, {"epoch", &epoch}});
  }
  std::vector<double> numbers() const {
    std::vector<double> out = {static_cast<double>(epoch)};
    for (const Tensor& weight : model.get_weights()) {
      for (const double x : to_vector<double>(weight.to(kFloat64))) out.push_back(x);
    }
    for (const Variable& v : model.optimizer().variables()) {
      for (const double x : to_vector<double>(v.value().to(kFloat64))) out.push_back(x);
    }
    return out;
  }

  Scope scope;
  Sequential model;
  Variable seen;
  int64_t epoch = 0;
  const Strategy strategy;
};

struct WorkerCheckpoint : cohort::testing::FolderTest {
  template <class Play>
  static auto on_workers(int workers, int replicas, const Play& play) {
    return run_with_deadline(kLimit, [&] { return Workers(workers, replicas).run(play); });
  }
};

// All save at one path, and 1, 2 and 3 workers, and one process with replicas, go on from there.
TEST_F(WorkerCheckpoint, OneIsWrittenAndRestoredAnywhere) {
  const auto trained = on_workers(2, 2, [&](const Strategy& strategy) {
    Program program(strategy);
    program.train();
    program.checkpoint().save(path("x"));
    EXPECT_TRUE(std::filesystem::exists(path("x/cohort.json"))) << "not there when save returns";
    return program.numbers();
  });
  EXPECT_EQ(trained[0], trained[1]);
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
  const auto restored = [&](const Strategy& strategy) {
    Program program(strategy);
    program.checkpoint().restore(path("x"));
    EXPECT_FLOAT_EQ(program.seen.value().item<float>(), 4.0F);
    program.model.fit(rows_of_test().batch(8), {.verbose = Verbose::kSilent});  // makes the slots
    Program fresh(strategy);
    fresh.model.fit(rows_of_test().batch(8), {.verbose = Verbose::kSilent});
    fresh.checkpoint().restore(path("x"));
    return fresh.numbers();
  };
  for (const int workers : {1, 2, 3}) {
    for (const auto& numbers : on_workers(workers, 1, restored)) EXPECT_EQ(numbers, trained[0]);
  }
  EXPECT_EQ(restored(mirrored_of(2)), trained[0]);
  EXPECT_EQ(restored(get_strategy()), trained[0]);
}

TEST_F(WorkerCheckpoint, AManagersNumbersAreOfAllWorkers) {
  for (const bool background : {false, true}) {
    std::filesystem::remove_all(path("run"));
    const auto saved = on_workers(3, 1, [&](const Strategy& strategy) {
      Program program(strategy);
      CheckpointManager manager(program.checkpoint(), path("run"),
                                {.max_to_keep = 2, .background = background});
      std::vector<std::string> paths;
      for (int i = 0; i < 3; ++i) {
        program.train();
        paths.push_back(manager.save());
      }
      manager.wait();
      EXPECT_TRUE(manager.restore_latest());
      EXPECT_EQ(program.epoch, 6);
      return paths;
    });
    const std::vector<std::string> expected = {path("run/ckpt-1"), path("run/ckpt-2"),
                                               path("run/ckpt-3")};
    for (const auto& paths : saved) EXPECT_EQ(paths, expected);
    EXPECT_FALSE(std::filesystem::exists(path("run/ckpt-1")));
    EXPECT_EQ(latest_checkpoint(path("run")), path("run/ckpt-3"));
  }
}

// As on hosts that share no disk: nothing is at the others' paths, and all have the chief's.
TEST_F(WorkerCheckpoint, TheChiefsFolderCounts) {
  on_workers(2, 1, [&](const Strategy& strategy) {
    const std::string own = path(std::to_string(worker_of(strategy)));
    Program program(strategy);
    CheckpointManager manager(program.checkpoint(), own);
    EXPECT_FALSE(manager.restore_latest());
    program.train();
    EXPECT_EQ(manager.save(), path("0/ckpt-1"));
    const std::vector<double> expected = program.numbers();
    program.train();
    EXPECT_NE(program.numbers(), expected);
    EXPECT_TRUE(manager.restore_latest());
    EXPECT_EQ(program.numbers(), expected);
    program.model.save_weights(own + "/w.safetensors");
    const std::vector<Tensor> weights = program.model.get_weights();
    program.train();
    program.model.load_weights(own + "/w.safetensors");
    EXPECT_TRUE(program.model.get_weights()[0].equal(weights[0]));
    return true;
  });
  EXPECT_EQ(names(), std::vector<std::string>{"0"});
}

// Case T28.
TEST_F(WorkerCheckpoint, ModelCheckpointWritesTheChiefsFilesOnly) {
  on_workers(2, 1, [&](const Strategy& strategy) {
    Program program(strategy);
    const std::string own = path(str_cat("worker", worker_of(strategy), "/e{epoch}.safetensors"));
    program.model.fit(
        rows_of_test().batch(8),
        {.epochs = 2, .callbacks = {ModelCheckpoint(own)}, .verbose = Verbose::kSilent});
    return true;
  });
  EXPECT_EQ(names(), std::vector<std::string>{"worker0"});
  EXPECT_TRUE(std::filesystem::exists(path("worker0/e2.safetensors")));
}

TEST_F(WorkerCheckpoint, WhatAWorkerHasOfItsOwnComesBackToIt) {
  on_workers(2, 1, [&](const Strategy& strategy) {
    const int64_t own = 10 + worker_of(strategy);
    const Variable v(scalar(1.0));
    int64_t counter = own, shared = 5;
    std::string text(static_cast<std::size_t>(own), 'x');
    auto data = Dataset::range(20).shard(2, worker_of(strategy)).make_iterator();
    for (int64_t i = 0; i < own - 8; ++i) data.next();
    const auto scope = strategy.scope();
    const Variable ours(scalar(2.0));
    const Checkpoint checkpoint({{"v", ours},
                                 {"counter", &counter},
                                 {"shared", &shared},
                                 {"text", &text},
                                 {"data", data},
                                 {"the_counter", &counter},
                                 {"the_data", data}});
    checkpoint.save(path("x"));
    const int64_t next = data.next()->tensor().item<int64_t>();
    counter = shared = 0;
    text.clear();
    checkpoint.restore(path("x"));
    EXPECT_EQ(counter, own);
    EXPECT_EQ(shared, 5);
    EXPECT_EQ(static_cast<int64_t>(text.size()), own);
    EXPECT_EQ(data.next()->tensor().item<int64_t>(), next);
    return true;
  });
  expect_error<InvalidArgument>({"\"counter\"", "3 workers", "each of 2"}, [&] {
    on_workers(3, 1, [&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      const Variable v(scalar(2.0));
      int64_t counter = 0, shared = 0;
      const Checkpoint checkpoint({{"v", v}, {"counter", &counter}, {"shared", &shared}});
      checkpoint.restore(path("x"));
      return true;
    });
  });
}

// A position in batches that all workers read is one of all, for any number of them; where each
// reads its own, as many have to go on.
TEST_F(WorkerCheckpoint, PositionsInData) {
  const auto seen_by = [&](int workers, AutoShardPolicy policy, bool first) {
    return on_workers(workers, 1, [&](const Strategy& strategy) {
      DataOptions options;
      options.auto_shard_policy = policy;
      const Dataset batches =
          Dataset::range(48).shuffle(48, {.seed = first ? 4 : 5}).batch(6).with_options(options);
      auto it = strategy.distribute_dataset(batches).make_iterator();
      const auto scope = strategy.scope();
      const Variable v(scalar(2.0));
      const Checkpoint checkpoint({{"v", v}, {"it", it}});
      if (first) {
        it.next();
        it.next();
        it.next();
        checkpoint.save(path("x"));
      } else {
        checkpoint.restore(path("x"));
      }
      std::vector<int64_t> out;
      while (auto step = it.next()) {
        for (const int64_t row : to_vector<int64_t>((*step)[0].tensor())) out.push_back(row);
      }
      return out;
    });
  };
  const auto sorted = [](std::vector<std::vector<int64_t>> parts) {
    std::vector<int64_t> out;
    for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
    std::sort(out.begin(), out.end());
    return out;
  };
  const auto rest = seen_by(2, AutoShardPolicy::kData, true);
  EXPECT_EQ(seen_by(2, AutoShardPolicy::kData, false), rest);
  EXPECT_EQ(sorted(seen_by(3, AutoShardPolicy::kData, false)), sorted(rest));
  const auto own = seen_by(2, AutoShardPolicy::kOff, true);
  EXPECT_EQ(seen_by(2, AutoShardPolicy::kOff, false), own);
}

// Saved between two updates: what the workers have summed until then is not lost, nor counted
// twice.
TEST_F(WorkerCheckpoint, AccumulatedGradientsOfAllWorkers) {
  const auto trained = [&](const Strategy& strategy, bool restarts) {
    const auto scope = strategy.scope();
    Sequential model(layers_of_test());
    const auto compile = [](Sequential& m) {
      m.compile({.optimizer = SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 4}),
                 .loss = "mse"});
    };
    compile(model);
    model.load_weights(path("w.safetensors"));
    const auto batch = [](int64_t i) {
      return (arange(18).to(kFloat32) * i).sin().reshape({6, 3});
    };
    for (int64_t i = 1; i < 3; ++i) model.train_on_batch(batch(i), batch(i).sum(1, true));
    Sequential other(layers_of_test());
    compile(other);
    if (restarts) {
      Checkpoint({{"model", model}}).save(path("x"));
      Checkpoint({{"model", other}}).restore(path("x"));
    }
    Sequential& goes_on = restarts ? other : model;
    for (int64_t i = 3; i < 9; ++i) goes_on.train_on_batch(batch(i), batch(i).sum(1, true));
    return goes_on.get_weights();
  };
  Sequential first(layers_of_test());
  first.save_weights(path("w.safetensors"));
  const std::vector<Tensor> expected = trained(get_strategy(), false);
  for (const auto& weights :
       on_workers(2, 1, [&](const Strategy& s) { return trained(s, true); })) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_TRUE(weights[i].allclose(expected[i], 1e-4, 1e-6)) << i;
    }
  }
}

TEST_F(WorkerCheckpoint, OtherObjectsOnAWorkerAreNamed) {
  expect_error<FailedPrecondition>({"same values on every worker", "worker 0", "\"b\"", "worker 1"},
                                   [&] {
                                     on_workers(2, 1, [&](const Strategy& strategy) {
                                       const auto scope = strategy.scope();
                                       const Variable v(scalar(1.0));
                                       const char* name = worker_of(strategy) == 0 ? "a" : "b";
                                       Checkpoint({{name, v}}).save(path("x"));
                                       return true;
                                     });
                                   });
  EXPECT_TRUE(names().empty());
}

TEST_F(WorkerCheckpoint, WhatTheChiefCannotDoFailsOnAll) {
  cohort::testing::write_bytes(path("file"), "x");
  on_workers(2, 1, [&](const Strategy& strategy) {
    Program program(strategy);
    const Checkpoint checkpoint = program.checkpoint();
    EXPECT_NE(error_text<Error>([&] { checkpoint.save(path("file/x")); }).find("file"),
              std::string::npos);
    expect_error<Error>({"nothing"}, [&] { checkpoint.restore(path("nothing")); });
    checkpoint.save(path("x"));  // the workers still work together
    return true;
  });
  cohort::testing::damage(cohort::testing::shard_of(path("x")));
  on_workers(2, 1, [&](const Strategy& strategy) {
    Program program(strategy);
    expect_error<DataLoss>({"checksum"}, [&] { program.checkpoint().restore(path("x")); });
    return true;
  });
}

TEST_F(WorkerCheckpoint, TheChiefPrints) {
  ::testing::internal::CaptureStdout();
  on_workers(3, 1, [&](const Strategy& strategy) {
    Program program(strategy);
    program.model.summary();
    program.model.fit(rows_of_test().batch(8), {.verbose = Verbose::kLine});
    program.model.evaluate(rows_of_test().batch(8), {.verbose = Verbose::kLine});
    return true;
  });
  const std::string text = ::testing::internal::GetCapturedStdout();
  const auto count = [&](const std::string& what) {
    int n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count("Total params"), 1) << text;
  EXPECT_EQ(count("loss: "), 2) << text;
}

// The handler is made when no layer has a weight yet, so nothing says who trains together.
TEST_F(WorkerCheckpoint, AHandlerLearnsOfWorkersFromWeightsThatAreMadeLater) {
  run_with_deadline(kLimit, [&] {
    struct Ended {};
    std::array<std::atomic<int64_t>, 2> ended = {};
    std::atomic<bool> is_near{false};
    Workers(2, 1).each([&](const Strategy& strategy) {
      const auto w = static_cast<std::size_t>(worker_of(strategy));
      const auto scope = strategy.scope();
      Sequential model({Dense(1, {.name = "late"})});
      PreemptionCheckpointHandler handler(
          nullptr, Checkpoint({{"model", model}}), path("x"),
          {.termination_watcher_fn = [&, w] { return w == 1 && is_near.load(); },
           .exit_fn = [] { throw Ended(); }});
      try {
        for (;;) {
          handler.run([&] { strategy.run([&] { model(ones({2, 3})); }); });
          is_near = true;
        }
      } catch (const Ended&) {
      }
      ended[w] = handler.total_run_calls();
    });
    EXPECT_EQ(ended[0], ended[1]);
  });
}

}  // namespace
}  // namespace cohort::keras
