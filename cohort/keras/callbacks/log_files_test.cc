// SPDX-License-Identifier: Apache-2.0
//
// Callbacks that write what fit logs into files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include "cohort/data/dataset.h"
#include "cohort/data/test_files.h"
#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/strategies.h"

namespace cohort::keras {
namespace {

constexpr Verbose kSilent = Verbose::kSilent;

struct LogFiles : testing::FilesTest {
  LogFiles() { model_.compile({.loss = "mse"}); }

  static Dataset steps(int64_t count) {
    const Tensor x = ones({2 * count, 1});
    return Dataset::from_tensor_slices({x, x * 2}).batch(2);
  }
  // Of a fit of one epoch for each row, whose values are these.
  void fit(const std::vector<std::vector<double>>& rows, const std::vector<std::string>& names,
           const Callback& callback) {
    const LambdaCallback script({.on_epoch_end = [&](int epoch, Logs& logs) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        logs.set(names[i], rows.at(static_cast<std::size_t>(epoch)).at(i));
      }
    }});
    model_.fit(steps(1), {.epochs = static_cast<int>(rows.size()),
                          .callbacks = {script, callback},
                          .verbose = kSilent});
  }
  // "tag step" of every value in the files of a run.
  std::multiset<std::string> tags(const std::string& run) const {
    std::multiset<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path(run))) {
      for (const data::Element& record : data::Dataset::tf_records({entry.path().string()})) {
        const std::string& event = record.string();
        for (const char* tag : kTags) {
          if (event.find(tag) == std::string::npos) continue;
          // Field 2 of an event, behind the time: the step; none is 0.
          const int step = event[9] == 0x10 ? event[10] : 0;
          out.insert(str_cat(tag, " ", step));
          break;
        }
      }
    }
    return out;
  }
  static constexpr const char* kTags[] = {
      "epoch_loss",       "epoch_learning_rate",    "epoch_steps_per_second",
      "batch_loss",       "batch_steps_per_second", "evaluation_loss_vs_iterations",
      "kernel/histogram", "bias/histogram"};

  Sequential model_{{Dense(1)}};
};

using Tags = std::multiset<std::string>;

TEST_F(LogFiles, CSVHasTheTextsOfKeras) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  fit({{0.1, 1e-05}, {1e16, 3}, {nan, 1.0 / 3}}, {"loss", "acc"}, CSVLogger(path("log.csv")));
  EXPECT_EQ(read("log.csv"),
            "epoch,acc,loss\n0,1e-05,0.1\n1,3.0,1e+16\n2,0.3333333333333333,nan\n");
}

TEST_F(LogFiles, CSVGoesOnInAFileThatIsThere) {
  fit({{1}}, {"loss"}, CSVLogger(path("log.csv"), {.separator = ";"}));
  fit({{2}}, {"loss"}, CSVLogger(path("log.csv"), {.separator = ";", .append = true}));
  EXPECT_EQ(read("log.csv"), "epoch;loss\n0;1.0\n0;2.0\n");
  EXPECT_THROW(fit({{2, 3}}, {"loss", "more"},
                   CSVLogger(path("log.csv"), {.separator = ";", .append = true})),
               InvalidArgument);
  EXPECT_EQ(read("log.csv"), "epoch;loss\n0;1.0\n0;2.0\n");
  fit({{5}}, {"loss"}, CSVLogger(path("log.csv")));
  EXPECT_EQ(read("log.csv"), "epoch,loss\n0,5.0\n");
  EXPECT_THROW(fit({{1}}, {"loss"}, CSVLogger(path("no/folder/log.csv"))), Error);
  EXPECT_THROW(CSVLogger(path("log.csv"), {.separator = ""}), InvalidArgument);
}

TEST_F(LogFiles, CSVMarksWhatAnEpochLacks) {
  const LambdaCallback sometimes({.on_epoch_end = [](int epoch, Logs& logs) {
    if (epoch == 0) logs.set("extra", 1.5);
    logs.set("loss", 2.0);
  }});
  model_.fit(
      steps(1),
      {.epochs = 2, .callbacks = {sometimes, CSVLogger(path("log.csv"))}, .verbose = kSilent});
  EXPECT_EQ(read("log.csv"), "epoch,extra,loss\n0,1.5,2.0\n1,NA,2.0\n");
}

TEST_F(LogFiles, TensorBoardHasEpochsOfBothRuns) {
  model_.fit(steps(3), {.epochs = 2,
                        .validation_data = steps(1),
                        .callbacks = {TensorBoard(path("logs"))},
                        .verbose = kSilent});
  EXPECT_EQ(tags("logs/train"), (Tags{"epoch_learning_rate 0", "epoch_learning_rate 1",
                                      "epoch_loss 0", "epoch_loss 1"}));
  EXPECT_EQ(tags("logs/validation"), (Tags{"epoch_loss 0", "epoch_loss 1"}));
}

TEST_F(LogFiles, TensorBoardHasStepsAndHistogramsWhereAsked) {
  model_.fit(
      steps(3),
      {.epochs = 2,
       .callbacks = {TensorBoard(
           path("logs"), {.histogram_freq = 1, .write_steps_per_second = true, .update_freq = 2})},
       .verbose = kSilent});
  EXPECT_EQ(tags("logs/train"),
            (Tags{"epoch_learning_rate 0", "epoch_learning_rate 1", "epoch_loss 0", "epoch_loss 1",
                  "epoch_steps_per_second 0", "epoch_steps_per_second 1", "batch_loss 2",
                  "batch_loss 4", "batch_loss 6", "batch_steps_per_second 2",
                  "batch_steps_per_second 4", "batch_steps_per_second 6", "kernel/histogram 0",
                  "kernel/histogram 1", "bias/histogram 0", "bias/histogram 1"}));
  EXPECT_FALSE(std::filesystem::exists(path("logs/validation")));
}

TEST_F(LogFiles, TensorBoardCountsStepsOfExecutions) {
  model_.compile({.loss = "mse", .steps_per_execution = 2});
  model_.fit(steps(5),
             {.callbacks = {TensorBoard(path("logs"), {.update_freq = 3})}, .verbose = kSilent});
  // Executions end behind steps 2, 4 and 5.
  EXPECT_EQ(tags("logs/train"), (Tags{"epoch_learning_rate 0", "epoch_loss 0", "batch_loss 4"}));
}

TEST_F(LogFiles, TensorBoardShowsAnEvaluationByUpdates) {
  model_.fit(steps(3), {.verbose = kSilent});
  model_.evaluate(steps(1), {.callbacks = {TensorBoard(path("logs"))}, .verbose = kSilent});
  EXPECT_EQ(tags("logs/validation"), (Tags{"evaluation_loss_vs_iterations 3"}));
  EXPECT_FALSE(std::filesystem::exists(path("logs/train")));
}

TEST_F(LogFiles, TensorBoardWritesOnceUnderAStrategy) {
  const MirroredStrategy strategy({"CPU:0", "CPU:1"});
  const auto scope = strategy.scope();
  Sequential model({Dense(1)});
  model.compile({.loss = "mse"});
  model.fit(steps(2),
            {.callbacks = {TensorBoard(path("logs"), {.histogram_freq = 1, .update_freq = 1})},
             .verbose = kSilent});
  EXPECT_EQ(tags("logs/train"), (Tags{"epoch_learning_rate 0", "epoch_loss 0", "batch_loss 1",
                                      "batch_loss 2", "kernel/histogram 0", "bias/histogram 0"}));
}

TEST_F(LogFiles, TensorBoardRefusesWhatCannotBe) {
  EXPECT_THROW(TensorBoard("logs", {.histogram_freq = -1}), InvalidArgument);
  EXPECT_THROW(TensorBoard("logs", {.update_freq = -1}), InvalidArgument);
  EXPECT_THROW(model_.fit(steps(1), {.callbacks = {TensorBoard("/proc/none")}, .verbose = kSilent}),
               Error);
}

}  // namespace
}  // namespace cohort::keras
