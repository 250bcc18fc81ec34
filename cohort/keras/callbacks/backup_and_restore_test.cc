// SPDX-License-Identifier: Apache-2.0
//
// A fit that ends anywhere, by an error here, and is started again in fresh objects has the bits of
// one that never did. tests/multi_worker kills processes.
#include "cohort/keras/callbacks/backup_and_restore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "cohort/checkpoint/test_objects.h"
#include "cohort/keras/keras.h"
#include "cohort/keras/test_metrics.h"
#include "cohort/keras/test_strategies.h"
#include "cohort/runtime/random.h"
#include "cohort/strategy/test_workers.h"
#include "cohort/testing/deadline.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

using cohort::testing::expect_error;
using cohort::testing::RowCount;
using cohort::testing::run_with_deadline;
using cohort::testing::strategy_of;
using cohort::testing::Workers;

struct Killed {};

/// Ends fit behind a step, counted over all epochs from 1.
struct KillAt : CallbackBase {
  KillAt(int64_t step, std::function<void()> how) : left(step), kill(std::move(how)) {}
  void on_epoch_begin(int epoch) override { epochs.push_back(epoch); }
  void on_train_batch_end(int64_t, Logs&) override {
    if (--left == 0) kill();
  }
  void on_test_begin() override {
    if (--validations_left == 0) kill();
  }
  void on_train_end() override {
    if (at_end) at_end();
  }
  int64_t left;
  int validations_left = -1;
  const std::function<void()> kill;
  std::function<void()> at_end = {};
  std::vector<int> epochs;
};

constexpr int kEpochsOfBackup = 3;
constexpr int64_t kStepsOfBackup = 7;  // of 40 rows, 6 a batch; the last has 4

struct Result {
  std::vector<Tensor> weights = {};
  History history = {};
  bool operator==(const Result& other) const {
    bool same = weights.size() == other.weights.size();
    for (std::size_t i = 0; same && i < weights.size(); ++i) {
      same = weights[i].equal(other.weights[i]);
    }
    for (const auto& [name, values] : history.history) {
      same = same && values.back() == other.history[name].back();
    }
    return same;
  }
};

struct Plan {
  Strategy strategy;
  BackupAndRestoreOptions backup = {};
  std::string folder = {};  ///< Empty: no backup.
  int64_t kill_at = -1;
  int kill_in_validation = -1;  ///< Counted from 1: behind the last step of an epoch.
  std::function<void()> kill = [] { throw Killed(); };
  std::function<void()> at_end = {};
  std::optional<int64_t> steps_per_epoch = {};
  int per_execution = 1;
  AutoShardPolicy policy = AutoShardPolicy::kAuto;
};

/// All that a program makes when it starts, random numbers of its own included.
Result train(const Plan& plan, std::vector<int>* epochs = nullptr) {
  const auto scope = plan.strategy.scope();
  // Names count in the process, which workers that are threads share.
  Sequential model({InputLayer({4}), Dense(8, {.activation = "relu", .name = "hidden"}),
                    BatchNormalization({.name = "statistics"}), Dropout(0.3),
                    Dense(3, {.name = "out"})});
  model.compile({.optimizer = Adam({.learning_rate = 0.02}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy", std::make_shared<RowCount>()},
                 .steps_per_execution = plan.per_execution});
  const Tensor x = (arange(160).to(kFloat32) * 0.37).sin().reshape({40, 4});
  const Tensor y = (x.sum(1) * 10).to(kInt64).abs().remainder(3);
  DataOptions options;
  options.auto_shard_policy = plan.policy;
  const Dataset rows = Dataset::from_tensor_slices({x, y}).with_options(options);
  const auto killer = std::make_shared<KillAt>(plan.kill_at, plan.kill);
  killer->at_end = plan.at_end;
  killer->validations_left = plan.kill_in_validation;
  std::vector<Callback> callbacks = {
      killer, EarlyStopping({.monitor = "val_loss", .patience = 9, .restore_best_weights = true}),
      ReduceLROnPlateau({.monitor = "loss", .patience = 1, .min_delta = 0.3})};
  // Who starts again may do without some, and in another order.
  if (plan.kill_at < 0 && plan.kill_in_validation < 0) std::ranges::reverse(callbacks);
  if (plan.kill_at < 0 && plan.kill_in_validation < 0 && !plan.at_end && epochs == nullptr) {
    callbacks.pop_back();
  }
  if (!plan.folder.empty()) callbacks.push_back(BackupAndRestore(plan.folder, plan.backup));
  Dataset data = rows.shuffle(40).batch(6);
  if (plan.steps_per_epoch) data = data.repeat();
  Result result;
  result.history =
      model.fit(data, {.epochs = kEpochsOfBackup,
                       .validation_data = rows.take(9).shuffle(9, {.seed = 5}).batch(4),
                       .callbacks = callbacks,
                       .verbose = Verbose::kSilent,
                       .steps_per_epoch = plan.steps_per_epoch});
  result.weights = model.get_weights();
  if (epochs != nullptr) *epochs = killer->epochs;
  return result;
}

struct Backup : cohort::testing::FolderTest {
  void SetUp() override {
    FolderTest::SetUp();
    set_seed(11);
  }
  /// Killed behind each of these steps of the first start, then again, and finished.
  void expect_same_bits(Plan plan, const std::vector<int64_t>& steps) {
    set_seed(11);
    const Result whole = train(plan);
    plan.folder = path("backup");
    for (const int64_t step : steps) {
      for (const int64_t again : {0, 2}) {
        set_seed(11);
        plan.kill_at = step;
        EXPECT_THROW(train(plan), Killed) << step;
        set_seed(99);  // other weights, another order of the rows, until the backup is there
        if (std::filesystem::exists(path("backup/chief/checkpoint"))) {
          plan.kill_at = again;
          if (again > 0) {
            EXPECT_THROW(train(plan), Killed) << step;
          }
          set_seed(98);
        } else {
          set_seed(11);
        }
        plan.kill_at = -1;
        EXPECT_TRUE(train(plan) == whole) << "killed behind step " << step << ", again " << again;
        EXPECT_FALSE(std::filesystem::exists(path("backup"))) << "not deleted at the end";
      }
    }
  }
};

TEST_F(Backup, WhereverItEndsTheBitsAreTheSame) {
  for (const int replicas : {1, 2}) {
    Plan plan{.strategy = strategy_of(replicas)};
    expect_same_bits(plan, {3, 7, 9});
    plan.backup.save_freq = 3;
    expect_same_bits(plan, {2, 3, 5, 7, 13, 18});
    plan.backup.save_freq = 1;
    expect_same_bits(plan, {7, 10});
  }
}

// Nothing is left of the epoch but its end, which shows what its steps have counted.
TEST_F(Backup, BehindTheLastStepOfAnEpochTheBitsAreTheSame) {
  for (const int replicas : {0, 2}) {
    SCOPED_TRACE(replicas);
    Plan plan{.strategy = strategy_of(replicas), .backup = {.save_freq = 1}};
    set_seed(11);
    const Result whole = train(plan);
    plan.folder = path("backup");
    for (const int validation : {1, 2, 3}) {
      set_seed(11);
      plan.kill_in_validation = validation;
      EXPECT_THROW(train(plan), Killed);
      set_seed(99);
      plan.kill_in_validation = -1;
      const Result resumed = train(plan);
      EXPECT_TRUE(resumed == whole) << "killed in validation " << validation;
      for (const char* name : {"loss", "accuracy", "val_loss"}) {
        EXPECT_EQ(resumed.history[name].size(), static_cast<std::size_t>(4 - validation)) << name;
      }
    }
  }
}

// It logs a number of its own by the name that the loss has, and one by another.
struct OwnLogs : Sequential {
  using Sequential::Sequential;
  Logs train_step(const Element& batch) override {
    Sequential::train_step(batch);
    return {{"loss", 7.0}, {"rows", static_cast<double>(batch.rows())}};
  }
};

TEST_F(Backup, WhatAStepOfItsOwnHasLoggedIsShownAtTheEpochsEnd) {
  const auto fit = [&](int kill_in_validation) {
    OwnLogs model(std::vector<Layer>{Dense(1, {.name = "one"})});
    model.compile({.optimizer = "sgd", .loss = "mse"});
    const auto killer = std::make_shared<KillAt>(-1, [] { throw Killed(); });
    killer->validations_left = kill_in_validation;
    const Tensor x = ones({10, 2});
    return model.fit(Dataset::from_tensor_slices({x, ones({10, 1})}).batch(4),
                     {.epochs = 2,
                      .validation_data = Dataset::from_tensor_slices({x, ones({10, 1})}).batch(4),
                      .callbacks = {killer, BackupAndRestore(path("backup"), {.save_freq = 1})},
                      .verbose = Verbose::kSilent});
  };
  EXPECT_THROW(fit(1), Killed);
  const History history = fit(-1);
  EXPECT_EQ(history["loss"], (std::vector<double>{7, 7}));
  EXPECT_EQ(history["rows"], (std::vector<double>{2, 2}));
}

TEST_F(Backup, WithStepsOfAnEpochAndSeveralInAnExecution) {
  Plan plan{.strategy = strategy_of(2), .backup = {.save_freq = 2}, .steps_per_epoch = 5};
  expect_same_bits(plan, {4, 5, 8});
  plan.per_execution = 2;  // kill_at counts executions
  plan.steps_per_epoch = 6;
  expect_same_bits(plan, {1, 2, 5});
}

/// On workers that are threads; train() of each.
std::vector<Result> train_on_workers(int workers, const Plan& plan) {
  return run_with_deadline(std::chrono::seconds(100), [&] {
    return Workers(workers, 1).run([&plan](const Strategy& strategy) {
      Plan own = plan;
      own.strategy = strategy;
      return train(own);
    });
  });
}

// They read the parts of common batches, or batches of their own.
TEST_F(Backup, OfSeveralWorkers) {
  for (const AutoShardPolicy policy : {AutoShardPolicy::kAuto, AutoShardPolicy::kOff}) {
    set_seed(11);
    Plan plan{.strategy = get_strategy(), .backup = {.save_freq = 2}, .policy = policy};
    const std::vector<Result> whole = train_on_workers(2, plan);
    plan.folder = path("backup");
    plan.kill_at = 9;
    set_seed(11);
    EXPECT_ANY_THROW(train_on_workers(2, plan));
    plan.kill_at = -1;
    set_seed(99);
    const std::vector<Result> resumed = train_on_workers(2, plan);
    for (std::size_t w = 0; w < 2; ++w) EXPECT_TRUE(resumed[w] == whole[w]) << w;
  }
}

// What the others had read of the data is nowhere else.
TEST_F(Backup, BatchesOfTheWorkersOwnNeedAsManyWorkers) {
  Plan plan{.strategy = strategy_of(1),
            .backup = {.save_freq = 2},
            .folder = path("backup"),
            .kill_at = 9,
            .policy = AutoShardPolicy::kOff};
  EXPECT_ANY_THROW(train_on_workers(2, plan));
  plan.kill_at = -1;
  expect_error<InvalidArgument>(
      {"[backup_and_restore]", "2, for they read batches of their own", "got 1"},
      [&] { train(plan); });
  expect_error<InvalidArgument>({"[backup_and_restore]", "got 3"},
                                [&] { train_on_workers(3, plan); });
}

TEST_F(Backup, TheRunningEpochCountsAllRowsInAnotherLayout) {
  const std::vector<double> expected = {40, 40};  // of the epochs that were not over
  Plan plan{.strategy = strategy_of(2), .backup = {.save_freq = 2}, .folder = path("backup")};
  const auto killed = [&plan] {
    Plan first = plan;
    first.kill_at = 9;
    return first;
  };
  EXPECT_THROW(train(killed()), Killed);
  plan.strategy = strategy_of(1);
  EXPECT_EQ(train(plan).history["rows"], expected) << "replicas";
  EXPECT_ANY_THROW(train_on_workers(2, killed()));
  EXPECT_EQ(train(plan).history["rows"], expected) << "fewer workers";
  EXPECT_THROW(train(killed()), Killed);
  EXPECT_EQ(train_on_workers(2, plan)[0].history["rows"], expected) << "more workers";
}

// As TensorFlow's test: a second fit begins with the epoch that the first one did not finish.
TEST_F(Backup, FilesAndEpochs) {
  Plan plan{.strategy = strategy_of(1),
            .backup = {.delete_checkpoint = false},
            .folder = path("backup"),
            .kill_at = 2 * kStepsOfBackup + 1};
  EXPECT_THROW(train(plan), Killed);
  EXPECT_TRUE(std::filesystem::exists(path("backup/chief/ckpt-2")));
  EXPECT_FALSE(std::filesystem::exists(path("backup/chief/ckpt-1"))) << "the last one is kept";
  std::vector<int> epochs;
  plan.kill_at = -1;
  train(plan, &epochs);
  EXPECT_EQ(epochs, std::vector<int>{2});
  EXPECT_TRUE(std::filesystem::exists(path("backup/chief/ckpt-3")));
  train(plan, &epochs);
  EXPECT_TRUE(epochs.empty()) << "nothing is left to do";
}

TEST_F(Backup, OnAnotherNumberOfReplicasItGoesOn) {
  Plan plan{.strategy = strategy_of(2),
            .backup = {.save_freq = 2},
            .folder = path("backup"),
            .kill_at = 9};
  EXPECT_THROW(train(plan), Killed);
  plan.kill_at = -1;
  plan.strategy = strategy_of(1);
  std::vector<int> epochs;
  train(plan, &epochs);
  EXPECT_EQ(epochs, (std::vector<int>{1, 2}));
}

TEST_F(Backup, SigtermSavesAndEndsBehindTheStep) {
  Plan plan{.strategy = strategy_of(2)};
  const Result whole = train(plan);
  set_seed(11);
  plan.folder = path("backup");
  plan.backup = {.save_freq = 0, .save_before_preemption = true, .exit_fn = [] { throw Killed(); }};
  plan.kill_at = 9;
  plan.kill = [] { raise(SIGTERM); };
  EXPECT_THROW(train(plan), Killed);
  EXPECT_TRUE(std::filesystem::exists(path("backup/chief/ckpt-1")));
  plan.kill_at = -1;
  set_seed(99);
  EXPECT_TRUE(train(plan) == whole);
  struct sigaction now = {};
  ::sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "SIGTERM ends the program again";
}

// Nothing is left to be done, which the next start finds in the backup.
TEST_F(Backup, SigtermBehindTheLastStepEndsToo) {
  Plan plan{.strategy = strategy_of(2)};
  const Result whole = train(plan);
  set_seed(11);
  plan.folder = path("backup");
  plan.backup = {.save_before_preemption = true, .exit_fn = [] { throw Killed(); }};
  plan.at_end = [] { raise(SIGTERM); };
  EXPECT_THROW(train(plan), Killed);
  plan.at_end = {};
  set_seed(99);
  std::vector<int> epochs;
  EXPECT_EQ(train(plan, &epochs).weights.size(), whole.weights.size());
  EXPECT_TRUE(epochs.empty());
  EXPECT_FALSE(std::filesystem::exists(path("backup/chief")));
}

TEST_F(Backup, AnotherLengthOfTheEpochIsNamed) {
  Plan plan{.strategy = strategy_of(1),
            .backup = {.save_freq = 2},
            .folder = path("backup"),
            .kill_at = 7,
            .steps_per_epoch = 5};
  EXPECT_THROW(train(plan), Killed);  // the backup is behind step 1 of epoch 2
  plan.kill_at = -1;
  for (const std::optional<int64_t> steps :
       {std::optional<int64_t>(1), std::optional<int64_t>(6)}) {
    plan.steps_per_epoch = steps;
    expect_error<InvalidArgument>(
        {"steps_per_epoch", "after step 1 of epoch 2", str_cat("got ", *steps, " now and 5 then")},
        [&] { train(plan); });
  }
  plan.steps_per_epoch = 5;
  std::vector<int> epochs;
  train(plan, &epochs);
  EXPECT_EQ(epochs, (std::vector<int>{1, 2}));
}

// The first fit of a program that begins again must not take the second one's backup for its own.
TEST_F(Backup, FitsThatShareAFolderAreNamed) {
  Plan plan{.strategy = strategy_of(1), .folder = path("backup")};
  train(plan);
  plan.kill_at = kStepsOfBackup + 1;
  EXPECT_THROW(train(plan), Killed);
  plan.kill_at = -1;
  plan.folder = path("backup/../backup");  // as a new process: it has had no fit there
  expect_error<FailedPrecondition>({"number 1", "number 2", "a folder of its own"},
                                   [&] { train(plan); });
  plan.folder = path("backup");
  std::vector<int> epochs;
  train(plan, &epochs);
  EXPECT_EQ(epochs, (std::vector<int>{1, 2}));
}

TEST_F(Backup, WhatContradictsItselfIsRefused) {
  expect_error<InvalidArgument>({"folder"}, [] { BackupAndRestore(""); });
  expect_error<InvalidArgument>({"save_freq", "save_before_preemption"},
                                [] { BackupAndRestore("x", {.save_freq = 0}); });
  expect_error<InvalidArgument>({"\"epoch\"", "\"batch\""},
                                [] { BackupAndRestore("x", {.save_freq = "batch"}); });
  expect_error<InvalidArgument>({"save_freq", "-1"},
                                [] { BackupAndRestore("x", {.save_freq = -1}); });
}

}  // namespace
}  // namespace cohort::keras
