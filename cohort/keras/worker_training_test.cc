// SPDX-License-Identifier: Apache-2.0
//
// Models of several workers train, are measured and predict as one process with all replicas does:
// with one replica a worker to the last bit, and the same on every worker always.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/autograd/embedding.h"
#include "cohort/autograd/gradient_tape.h"
#include "cohort/autograd/leaf_gradients.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_metrics.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/replica_context.h"
#include "cohort/strategy/strategies.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::error_text;
using cohort::testing::expect_error;
using cohort::testing::expect_words;
using cohort::testing::RowCount;
using cohort::testing::run_with_deadline;
using cohort::testing::Workers;
using Numbers = std::vector<double>;

constexpr auto kLimit = std::chrono::seconds(90);

struct Layout {
  int workers;
  int local;
};

void append(Numbers& to, const Tensor& t) {
  for (const double x : to_vector<double>(t.to(kFloat64))) to.push_back(x);
}

// Plain arithmetic in an update of its own.
struct OwnMomentum : OptimizerBase {
  explicit OwnMomentum(int accumulates = 1)
      : OptimizerBase(0.05, "own", {.gradient_accumulation_steps = accumulates}) {}
  void on_build(std::span<const Variable> variables) override {
    for (const Variable& v : variables) momentum.push_back(add_slot(v, "momentum"));
  }
  void update(const Variable& variable, const Gradient& gradient) override {
    const Variable& m = momentum[index_of(variable)];
    m.assign(m.value() * 0.9 - gradient.as_tensor() * learning_rate());
    variable.assign_add(m.value());
  }
  std::vector<Variable> momentum;
};

data::Dataset rows_of(int64_t count) {
  const Tensor x = (arange(count * 3).to(kFloat32) * 0.37).sin().reshape({count, 3});
  return data::Dataset::from_tensor_slices({x, x.sum(1, true) * 0.5 + 1});
}

Sequential small_model() {
  // Names count in the process, which these workers share.
  return Sequential({InputLayer({3}), Dense(8, {.activation = "relu", .name = "hidden"}),
                     Dense(1, {.name = "out"})});
}

Numbers weights_of(const Model& model) {
  Numbers out;
  for (const Variable& v : model.variables()) append(out, v.value());
  return out;
}

Numbers numbers_of(const History& history) {
  Numbers out;
  for (const auto& [name, values] : history.history) {
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

class WorkerTraining : public ::testing::TestWithParam<Layout> {
 protected:
  static MirroredStrategy mirrored(int replicas) {
    std::vector<Device> devices;
    for (int r = 0; r < replicas; ++r) devices.emplace_back("CPU:" + std::to_string(r));
    return MirroredStrategy(devices);
  }

  /// play(strategy) gives the same on every worker, and what one process with all replicas gives.
  template <class Play>
  void expect_as_one_process(const Play& play) {
    run_with_deadline(kLimit, [&] {
      const Layout layout = GetParam();
      set_seed(3);
      const Numbers expected = play(mirrored(layout.workers * layout.local));
      set_seed(3);
      const Workers workers(layout.workers, layout.local);
      const std::vector<Numbers> all = workers.run(play);
      for (const Numbers& got : all) {
        EXPECT_EQ(got, all[0]) << "another worker";
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (layout.local == 1) {
            ASSERT_EQ(got[i], expected[i]) << i;
          } else {
            ASSERT_NEAR(got[i], expected[i], 2e-5) << i;
          }
        }
      }
    });
  }
  template <class Body>
  void on_workers(const Body& body) {
    run_with_deadline(kLimit, [&] { Workers(GetParam().workers, GetParam().local).each(body); });
  }
};

// Of 22 rows in batches of 8 the last has 6: uneven over three and four replicas.
TEST_P(WorkerTraining, FitEvaluateAndPredict) {
  const auto kept_mean = [] {
    return SGD({.learning_rate = 0.05,
                .use_ema = true,
                .ema_momentum = 0.7,
                .ema_overwrite_frequency = 2});
  };
  for (const std::string_view kind : {"own", "mean", "adam"}) {
    SCOPED_TRACE(std::string(kind));
    expect_as_one_process([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = small_model();
      model.compile({.optimizer = kind == "own"    ? Optimizer(std::make_shared<OwnMomentum>())
                                  : kind == "mean" ? Optimizer(kept_mean())
                                                   : Optimizer(Adam({.learning_rate = 0.01})),
                     .loss = "mse",
                     .metrics = {"mae", "mse"}});
      const data::Dataset rows = rows_of(22).batch(8);
      const History history = model.fit(
          rows, {.epochs = 3, .validation_data = rows_of(9).batch(4), .verbose = Verbose::kSilent});
      Numbers out = numbers_of(history);
      const Numbers weights = weights_of(model);
      out.insert(out.end(), weights.begin(), weights.end());
      const Logs tested = model.evaluate(rows, {.verbose = Verbose::kSilent});
      for (const std::string& name : tested.names()) out.push_back(tested.number(name));
      append(out, model.predict(
                      rows_of(22).map([](const Tensor& x, const Tensor&) { return x; }).batch(8),
                      {.verbose = Verbose::kSilent}));
      return out;
    });
  }
}

TEST_P(WorkerTraining, TrainAndTestOnBatch) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model = small_model();
    model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .metrics = {"mae"}});
    const Tensor x = (arange(21).to(kFloat32) * 0.3).cos().reshape({7, 3});
    Numbers out;
    for (int i = 0; i < 3; ++i) {
      const Logs logs = model.train_on_batch(x, x.sum(1, true));
      out.push_back(logs.number("loss"));
    }
    out.push_back(model.test_on_batch(x, x.sum(1, true)).number("mae"));
    return out;
  });
}

// What its own train_step logs: shares of losses are added, all else is the mean of the rows.
struct Logger : Model {
  Layer out = add("out", Dense(1, {.name = "out"}));
  Tensor call(const Tensor& x, const CallArgs& args) override { return out(x, args); }
  Logs train_step(const Element& batch) override {
    const auto [x, y, weight] = unpack_x_y_sample_weight(batch);
    GradientTape tape;
    const Tensor y_pred = (*this)(x, {.training = true});
    const Tensor loss = compute_loss(x, y, y_pred, weight);
    optimizer().apply_gradients(tape.gradient(loss, trainable_variables()));
    return {{"loss", loss},
            {"twice", 2 * loss},
            {"copy", loss.item<double>()},
            {"mean", y_pred.mean()}};
  }
};

TEST_P(WorkerTraining, WhatAStepLogsIsOfAllReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Logger model;
    model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse"});
    return numbers_of(model.fit(rows_of(12).batch(6), {.epochs = 2, .verbose = Verbose::kSilent}));
  });
}

// Each variable's gradient is missing on some replicas.
TEST_P(WorkerTraining, GradientsThatSomeReplicasDoNotHave) {
  for (const bool own : {false, true}) {
    expect_as_one_process([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      const Variable a(ones({3}), {.name = "a"}), b(ones({2}), {.name = "b"});
      const Variable c(ones({1}), {.name = "c"});
      const Optimizer optimizer =
          own ? Optimizer(std::make_shared<OwnMomentum>()) : Optimizer(SGD({.learning_rate = 0.1}));
      for (int step = 0; step < 3; ++step) {
        strategy.run([&] {
          const int id = get_replica_context().replica_id_in_sync_group();
          optimizer.apply_gradients(
              std::vector<GradientAndVariable>{{full({3}, 0.1 * id + step), a},
                                               {id == 1 ? Gradient(full({2}, 0.7)) : Gradient(), b},
                                               {Gradient(), c}});
        });
      }
      Numbers out;
      for (const Variable& v : {a, b, c}) append(out, v.value());
      return out;
    });
  }
}

// Of a table whose gradient is rows, other ones on each replica.
TEST_P(WorkerTraining, RowsOfATable) {
  for (const bool lazy : {false, true}) {
    expect_as_one_process([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      const Variable table((arange(150).to(kFloat32) * 0.1).sin().reshape({50, 3}));
      const Variable bias(ones({3}));
      Numbers out;
      for (const Optimizer& optimizer :
           {Optimizer(Adam({.learning_rate = 0.1, .lazy_rows = lazy})),
            Optimizer(Adagrad({.learning_rate = 0.1, .lazy_rows = lazy}))}) {
        for (int step = 0; step < 3; ++step) {
          strategy.run([&] {
            const int id = get_replica_context().replica_id_in_sync_group();
            const Tensor ids = from_vector(std::vector<int64_t>{3, 7 * id + step, 3, 49 - id}, {4});
            GradientTape tape;
            const Tensor loss = ((embedding_lookup(table, ids) + bias.value()).sin() * id).sum();
            optimizer.apply_gradients(tape.gradient(loss, {table, bias}));
          });
        }
        append(out, table.value());
      }
      append(out, bias.value());
      return out;
    });
  }
}

// The program has added the gradients up itself, and every replica applies the sum to its copy.
TEST_P(WorkerTraining, GradientsThatTheProgramHasAggregated) {
  for (const char* name : {"sgd", "adam"}) {
    expect_as_one_process([&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      const Variable v((arange(40).to(kFloat32) * 0.1).sin());
      const Optimizer optimizer(name);
      for (int step = 0; step < 4; ++step) {
        strategy.run([&] {
          const ReplicaContext ctx = get_replica_context();
          const Tensor g = (arange(40).to(kFloat32) + ctx.replica_id_in_sync_group()).cos() + step;
          // In between as always: the sum is the same.
          const bool skip = step != 2;
          optimizer.apply_gradients({{skip ? ctx.all_reduce("sum", g) : g, v}},
                                    {.skip_gradients_aggregation = skip});
        });
      }
      Numbers out;
      append(out, v.value());
      return out;
    });
  }
}

TEST_P(WorkerTraining, AllReduceGradForAnOptimizerOfLibTorch) {
  expect_as_one_process([&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const std::vector<Variable> all = {Variable(ones({700})), Variable(ones({2})),
                                       Variable(ones({1}))};
    Numbers out;
    const auto grads = strategy.run([&] {
      const int id = get_replica_context().replica_id_in_sync_group();
      (all[0] * (arange(700).to(kFloat32) + id)).sum().backward();
      if (id == 1) (all[1] * 3).sum().backward();
      all_reduce_grad(all, "mean");
      return std::pair<Tensor, Tensor>(all[0].grad().clone(), all[1].grad().clone());
    });
    append(out, grads[0].first);
    append(out, grads[0].second);
    return out;
  });
}

TEST_P(WorkerTraining, AccumulatedGradientsMeetAtTheLastStepOnly) {
  constexpr int kEvery = 3;
  run_with_deadline(kLimit, [&] {
    const Layout layout = GetParam();
    const auto play = [&](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = small_model();
      const Optimizer optimizer =
          SGD({.learning_rate = 0.1, .gradient_accumulation_steps = kEvery});
      optimizer.build(model.trainable_variables());
      for (int step = 0; step < 2 * kEvery; ++step) {
        strategy.run([&] {
          const int id = get_replica_context().replica_id_in_sync_group();
          const Tensor x = (arange(6).to(kFloat32) + id + step).sin().reshape({2, 3});
          GradientTape tape;
          const Tensor loss = model(x).sum();
          optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()));
        });
      }
      return weights_of(model);
    };
    set_seed(3);
    const Numbers expected = play(mirrored(layout.workers * layout.local));
    set_seed(3);
    const Workers workers(layout.workers, layout.local);
    std::atomic<int> commits = 0;
    workers.job().before_each(
        0, [&](const auto&, const cohort::internal::collectives::CallSignature& call) {
          if (call.collective == cohort::internal::collectives::Collective::kCommit) ++commits;
        });
    for (const Numbers& got : workers.run(play)) {
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-6) << i;
      const bool same = got == expected;
      EXPECT_TRUE(same || layout.local > 1);
    }
    EXPECT_EQ(commits, 2);
  });
}

// The step that fails on one worker only, between two that meet: others have counted it.
TEST_P(WorkerTraining, AccumulationBeginsAnewOnAllWorkersAfterAFailure) {
  std::barrier all_made(GetParam().workers);
  on_workers([&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable v(ones({2}));
    const Optimizer optimizer = SGD({.learning_rate = 1.0, .gradient_accumulation_steps = 2});
    optimizer.build(std::vector<Variable>{v});
    all_made.arrive_and_wait();
    const auto step = [&](bool fails) {
      strategy.run([&] {
        const int id = get_replica_context().replica_id_in_sync_group();
        if (fails && id == 0) throw InvalidArgument("[step] expected more");
        optimizer.apply_gradients(std::vector<GradientAndVariable>{{ones({2}), v}});
      });
    };
    expect_error<InvalidArgument>({"[step] expected more"}, [&] {
      step(true);
      step(false);  // where the first one was not told
    });
    step(false);
    EXPECT_EQ(to_vector<float>(v.value()), (std::vector<float>{1, 1}));
    step(false);
    const float replicas = static_cast<float>(strategy.num_replicas_in_sync());
    EXPECT_EQ(to_vector<float>(v.value()), std::vector<float>(2, 1 - replicas));
    EXPECT_EQ(optimizer.iterations().value().item<int64_t>(), 1);
  });
}

TEST_P(WorkerTraining, StopTrainingOnOneWorkerEndsFitOnAllAtTheSameStep) {
  run_with_deadline(kLimit, [&] {
    const Workers workers(GetParam().workers, GetParam().local);
    const auto steps = workers.run([](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = small_model();
      model.compile({.optimizer = SGD(), .loss = "mse"});
      const bool chief = strategy.extended().layout().worker() == 0;
      int64_t done = 0;
      const History history = model.fit(
          rows_of(40).batch(4), {.epochs = 3,
                                 .callbacks = {LambdaCallback({.on_train_batch_end =
                                                                   [&](int64_t step, Logs&) {
                                                                     ++done;
                                                                     if (chief && step == 2) {
                                                                       model.stop_training();
                                                                     }
                                                                   }})},
                                 .verbose = Verbose::kSilent});
      EXPECT_EQ(history.epoch, std::vector<int>{0});
      return done;
    });
    for (const int64_t done : steps) EXPECT_EQ(done, 3);
  });
}

TEST_P(WorkerTraining, A9_ACallbackThatThrowsOnOneWorkerEndsFitOnAll) {
  on_workers([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model = small_model();
    model.compile({.optimizer = SGD(), .loss = "mse"});
    const bool last = strategy.extended().layout().worker() > 0;
    const auto fit = [&](bool throws) {
      return model.fit(
          rows_of(40).batch(4),
          {.callbacks = {LambdaCallback({.on_train_batch_end =
                                             [=](int64_t step, Logs&) {
                                               if (throws && last && step == 2) {
                                                 throw DataLoss("[callback] a full disk");
                                               }
                                             }})},
           .verbose = Verbose::kSilent});
    };
    expect_error<DataLoss>({"[callback] a full disk", "in fit"}, [&] { fit(true); });
    EXPECT_EQ(fit(false).history.at("loss").size(), 1U);
  });
}

TEST_P(WorkerTraining, A9_ANaNOnOneWorkerIsSeenByAllAtTheSameStep) {
  run_with_deadline(kLimit, [&] {
    const Workers workers(GetParam().workers, GetParam().local);
    const auto steps = workers.run([](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = small_model();
      model.compile({.optimizer = SGD(), .loss = "mse"});
      // Row 8, which the first worker has.
      const Tensor x = ones({16, 3});
      x[8].fill_(std::numeric_limits<float>::quiet_NaN());
      int64_t done = 0;
      const History history = model.fit(
          data::Dataset::from_tensor_slices({x, x.sum(1, true)}).batch(4),
          {.epochs = 2,
           .callbacks = {TerminateOnNaN(),
                         LambdaCallback({.on_train_batch_end = [&](int64_t, Logs&) { ++done; }})},
           .verbose = Verbose::kSilent});
      EXPECT_TRUE(std::isnan(history.history.at("loss")[0]));
      return done;
    });
    for (const int64_t done : steps) EXPECT_EQ(done, 3);
  });
}

// Worker 0 has 2 batches, worker 1 has 4, ...: who has no more goes on with none of its own.
TEST_P(WorkerTraining, A7_UnevenEndsOfTheData) {
  run_with_deadline(kLimit, [&] {
    const Workers workers(GetParam().workers, GetParam().local);
    const auto all = workers.run([](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Sequential model = small_model();
      model.compile({.optimizer = SGD(), .loss = "mse"});
      const int local = strategy.extended().num_local_replicas();
      int64_t steps = 0;
      const auto dist =
          strategy.distribute_datasets_from_function([&](const InputContext& context) {
            return rows_of(2 * local * 2 * (context.input_pipeline_id + 1)).batch(2);
          });
      const History history = model.fit(
          dist,
          {.epochs = 2,
           .callbacks = {LambdaCallback({.on_train_batch_end = [&](int64_t, Logs&) { ++steps; }})},
           .verbose = Verbose::kSilent,
           .steps_per_epoch = 20});
      Numbers out = numbers_of(history);
      out.push_back(static_cast<double>(steps));
      const Numbers weights = weights_of(model);
      out.insert(out.end(), weights.begin(), weights.end());
      return out;
    });
    for (const Numbers& got : all) EXPECT_EQ(got, all[0]);
    EXPECT_EQ(all[0][2], 2.0 * 2 * GetParam().workers);  // behind two epochs' losses
  });
}

// As many steps as the worker with the most data has: each epoch has all rows of all workers.
TEST_P(WorkerTraining, A7_UnevenDataOfEveryEpochIsWhole) {
  const Layout layout = GetParam();
  const auto batches_of = [](int worker) { return 5 + 3 * worker; };  // for each of its replicas
  double rows = 0;
  for (int w = 0; w < layout.workers; ++w) rows += 2 * layout.local * batches_of(w);
  on_workers([&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Sequential model = small_model();
    model.compile({.optimizer = SGD(), .loss = "mse", .metrics = {std::make_shared<RowCount>()}});
    const auto dist = strategy.distribute_datasets_from_function([&](const InputContext& context) {
      return rows_of(2 * layout.local * batches_of(context.input_pipeline_id)).batch(2);
    });
    const History history = model.fit(dist, {.epochs = 4,
                                             .verbose = Verbose::kSilent,
                                             .steps_per_epoch = batches_of(layout.workers - 1)});
    EXPECT_EQ(history["rows"], (std::vector<double>{rows, rows, rows, rows}));
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, WorkerTraining,
                         ::testing::Values(Layout{2, 1}, Layout{3, 1}, Layout{2, 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.workers) + "x" +
                                  std::to_string(test.param.local);
                         });

}  // namespace
}  // namespace cohort::keras
