// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/callbacks/callbacks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "cohort/base/check.h"
#include "cohort/checkpoint/safetensors.h"
#include "cohort/keras/callbacks/monitor.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/sequential.h"
#include "cohort/testing/expect_error.h"

namespace cohort::keras {
namespace {

namespace fs = std::filesystem;
constexpr Verbose kSilent = Verbose::kSilent;

TEST(Logs, KeepTheirOrderAndCopiesApart) {
  Logs logs = {{"b", scalar(1)}, {"a", scalar(2)}};
  Logs copy = logs;
  EXPECT_TRUE(copy.same_as(logs));
  copy.set("a", 3.0);
  copy.set("c", 4.0);
  EXPECT_FALSE(copy.same_as(logs));
  EXPECT_EQ(logs.names(), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(logs.number("a"), 2);
  EXPECT_EQ(copy.number("a"), 3);
  EXPECT_EQ(copy.sorted().names(), (std::vector<std::string>{"a", "b", "c"}));
  testing::expect_error<InvalidArgument>({"[b, a]"}, [&] { logs.number("loss"); });
  logs.set("list", tensor({1, 2}));
  EXPECT_THROW(logs.number("list"), InvalidArgument);
}

TEST(Logs, ReadWhenAskedAndKeepWithValues) {
  Tensor state = scalar(1);
  Logs logs;
  logs.set("x", [&] { return state; });
  const Logs kept = logs.values();
  state.fill_(5);
  EXPECT_EQ(logs.number("x"), 5);
  EXPECT_EQ(kept.number("x"), 1);
}

struct Recorder : CallbackBase {
  std::vector<std::string> calls;
  void say(const std::string& name) { calls.push_back(name); }
  void on_train_begin() override { say("train["); }
  void on_train_end() override { say("]train"); }
  void on_epoch_begin(int epoch) override { say(str_cat("epoch", epoch, "[")); }
  void on_epoch_end(int epoch, Logs& logs) override {
    say(str_cat("]epoch", epoch));
    for (const std::string& name : logs.names()) say(name);
  }
  void on_train_batch_begin(int64_t step) override { say(str_cat(step, "[")); }
  void on_train_batch_end(int64_t step, Logs& logs) override {
    EXPECT_TRUE(std::isfinite(logs.number("loss")));
    say(str_cat("]", step));
  }
  void on_test_begin() override { say("test["); }
  void on_test_end(Logs&) override { say("]test"); }
  void on_test_batch_begin(int64_t step) override { say(str_cat("t", step, "[")); }
  void on_test_batch_end(int64_t step, Logs&) override { say(str_cat("]t", step)); }
  void on_predict_begin() override { say("predict["); }
  void on_predict_end() override { say("]predict"); }
};

class Callbacks : public ::testing::Test {
 protected:
  Callbacks() : model_({Dense(1, {.use_bias = false, .kernel_initializer = "ones"})}) {
    compile(1);
  }
  void compile(int steps_per_execution) {
    model_.compile({.optimizer = SGD({.learning_rate = 0.01}),
                    .loss = "mse",
                    .steps_per_execution = steps_per_execution});
  }
  static Dataset batches(int64_t count) {
    const Tensor x = ones({2 * count, 1});
    return Dataset::from_tensor_slices({x, x * 2}).batch(2);
  }
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cohort-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Sequential model_;
  fs::path folder_;
};

// Sets a value of the logs from a list, before the callbacks after it look.
LambdaCallback scripted(const std::string& name, std::vector<double> values) {
  return LambdaCallback({.on_epoch_end = [=](int epoch, Logs& logs) {
    logs.set(name, values.at(static_cast<std::size_t>(epoch)));
  }});
}

TEST_F(Callbacks, AreCalledInKerasOrder) {
  const auto recorder = std::make_shared<Recorder>();
  model_.fit(batches(2),
             {.validation_data = batches(1), .callbacks = {recorder}, .verbose = kSilent});
  EXPECT_EQ(recorder->calls,
            (std::vector<std::string>{"train[", "epoch0[", "0[", "]0", "1[", "]1", "test[", "t0[",
                                      "]t0", "]test", "]epoch0", "loss", "val_loss", "]train"}));
  recorder->calls.clear();
  model_.evaluate(batches(1), {.callbacks = {recorder}, .verbose = kSilent});
  model_.predict(batches(1), {.callbacks = {recorder}, .verbose = kSilent});
  EXPECT_EQ(recorder->calls,
            (std::vector<std::string>{"test[", "t0[", "]t0", "]test", "predict[", "]predict"}));
}

TEST_F(Callbacks, AreCalledOncePerExecution) {
  const auto indexes = [&](int k, const std::string& mark) {
    compile(k);
    const auto recorder = std::make_shared<Recorder>();
    model_.fit(batches(50), {.callbacks = {recorder}, .verbose = kSilent});
    std::vector<int> out;
    for (const std::string& call : recorder->calls) {
      const bool begin = call.back() == '[' && std::isdigit(call[0]) != 0;
      const bool end = call[0] == ']' && std::isdigit(call[1]) != 0;
      if (mark == "begin" ? begin : end) out.push_back(std::stoi(call.substr(end ? 1 : 0)));
    }
    return out;
  };
  EXPECT_EQ(indexes(10, "begin"), (std::vector<int>{0, 10, 20, 30, 40}));
  EXPECT_EQ(indexes(10, "end"), (std::vector<int>{9, 19, 29, 39, 49}));
  EXPECT_EQ(indexes(20, "begin"), (std::vector<int>{0, 20, 40}));
  EXPECT_EQ(indexes(20, "end"), (std::vector<int>{19, 39, 49}));
  EXPECT_EQ(indexes(500, "begin"), (std::vector<int>{0}));
  EXPECT_EQ(indexes(500, "end"), (std::vector<int>{49}));
  EXPECT_EQ(model_.optimizer().iterations().value().item<int64_t>(), 50);
}

TEST_F(Callbacks, AddToTheHistoryAndStopInTheMiddleOfAnEpoch) {
  int steps = 0;
  const LambdaCallback stop({.on_epoch_end = [](int, Logs& logs) { logs.set("extra", 7.0); },
                             .on_train_batch_end =
                                 [&](int64_t step, Logs&) {
                                   ++steps;
                                   if (step == 1) model_.stop_training();
                                 }});
  const History history =
      model_.fit(batches(5), {.epochs = 3, .callbacks = {stop}, .verbose = kSilent});
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(history.epoch, (std::vector<int>{0}));
  EXPECT_EQ(history.history.at("extra"), (std::vector<double>{7}));
  EXPECT_FALSE(history.interrupted);
}

TEST_F(Callbacks, EarlyStoppingEndsWhenNothingImproves) {
  const auto run = [&](std::vector<double> values, EarlyStoppingOptions options) {
    EarlyStopping stopping(options);
    const auto epochs = static_cast<int>(values.size());
    const History history = model_.fit(
        batches(1), {.epochs = epochs,
                     .callbacks = {scripted(options.monitor, std::move(values)), stopping},
                     .verbose = kSilent});
    return static_cast<int>(history.epoch.size());
  };
  EXPECT_EQ(run({5, 4, 4, 3, 2}, {}), 3);
  EXPECT_EQ(run({5, 4, 4, 3, 2}, {.patience = 1}), 3);
  EXPECT_EQ(run({5, 4, 4, 3, 2}, {.patience = 2}), 5);
  EXPECT_EQ(run({5, 4, 4, 4, 2}, {.patience = 2}), 4);
  EXPECT_EQ(run({5, 4, 3.9, 3.8, 2}, {.min_delta = 0.5}), 3);
  EXPECT_EQ(run({5, 4, 3, 2, 1}, {.monitor = "mine", .mode = "max"}), 2);
  EXPECT_EQ(run({5, 4, 3, 2, 1}, {.mode = "max"}), 2);
  EXPECT_EQ(run({5, 4, 4.5, 2, 1}, {.patience = 2}), 5);
  EXPECT_EQ(run({5, 4, 4.5, 2, 1}, {.patience = 2, .baseline = 2}), 3);
  EXPECT_EQ(run({5, 4, 3, 2, 1}, {.patience = 2, .baseline = 4.5}), 5);
  EXPECT_EQ(run({5, 6, 7, 8, 9}, {.start_from_epoch = 3}), 5);
  EXPECT_EQ(run({5, 6, 7, 8, 9}, {.start_from_epoch = 1}), 3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(run({nan, nan, 3, 2}, {}), 2);
  EXPECT_EQ(run({nan, nan, 3, 2}, {.patience = 3}), 4);
  EXPECT_THROW(EarlyStopping({.mode = "best"}), InvalidArgument);
  EXPECT_THROW(EarlyStopping({.patience = -1}), InvalidArgument);
  EXPECT_THROW(EarlyStopping({.min_delta = nan}), InvalidArgument);
}

TEST_F(Callbacks, EarlyStoppingGoesBackToTheBestWeights) {
  std::vector<float> kernels;
  const LambdaCallback watch({.on_epoch_end = [&](int, Logs&) {
    kernels.push_back(model_.get_weights()[0].item<float>());
  }});
  EarlyStopping stopping({.patience = 2, .restore_best_weights = true});
  model_.fit(batches(1), {.epochs = 6,
                          .callbacks = {scripted("val_loss", {5, 1, 2, 3, 4, 5}), watch, stopping},
                          .verbose = kSilent});
  ASSERT_EQ(kernels.size(), 4u);
  EXPECT_NE(kernels[1], kernels[3]);
  EXPECT_EQ(model_.get_weights()[0].item<float>(), kernels[1]);
  EXPECT_EQ(stopping.stopped_epoch(), 3);
  EXPECT_EQ(stopping.best_epoch(), 1);
}

TEST_F(Callbacks, EarlyStoppingGoesBackAfterCtrlCButNotAfterAnError) {
  const auto before = std::signal(SIGINT, SIG_DFL);
  const auto run = [&](void (*end)()) {
    std::vector<float> kernels;
    const LambdaCallback watch({.on_epoch_end = [&](int epoch, Logs&) {
      kernels.push_back(model_.get_weights()[0].item<float>());
      if (epoch == 1) end();
    }});
    const EarlyStopping stopping({.patience = 9, .restore_best_weights = true});
    try {
      model_.fit(batches(1), {.epochs = 4,
                              .callbacks = {scripted("val_loss", {1, 2, 3, 4}), stopping, watch},
                              .verbose = kSilent,
                              .on_interrupt = OnInterrupt::kReturn});
    } catch (const Cancelled&) {
    }
    return model_.get_weights()[0].item<float>() == kernels[0];
  };
  EXPECT_TRUE(run([] { ::raise(SIGINT); }));
  EXPECT_FALSE(run([] { throw Cancelled("on purpose"); }));
  std::signal(SIGINT, before);
}

TEST_F(Callbacks, AMissingValueToWatchIsOneWarning) {
  EarlyStopping stopping({.monitor = "nothing", .mode = "min"});
  ModelCheckpoint checkpoint(path("{epoch}.safetensors"), {.save_best_only = true});
  ::testing::internal::CaptureStderr();
  const History history = model_.fit(
      batches(1), {.epochs = 3, .callbacks = {stopping, checkpoint}, .verbose = kSilent});
  EXPECT_EQ(history.epoch.size(), 3u);
  // Keras saves what it cannot compare.
  EXPECT_EQ(files(), (std::set<std::string>{"1.safetensors", "2.safetensors", "3.safetensors"}));
  const std::string text = ::testing::internal::GetCapturedStderr();
  for (const char* warning :
       {"[early_stopping] expected \"nothing\" to watch, got only [loss]: fit does not stop early",
        "[model_checkpoint] expected \"val_loss\" to watch, got only [loss]: saves every time"}) {
    const std::size_t at = text.find(warning);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find(warning, at + 1), std::string::npos) << "once: " << text;
  }
}

TEST_F(Callbacks, ModelCheckpointNamesFilesByEpochAndValues) {
  model_.fit(batches(1),
             {.epochs = 2,
              .callbacks = {scripted("val_loss", {0.126, 12}),
                            ModelCheckpoint(path("m-{epoch:02d}-{val_loss:.2f}.safetensors"))},
              .verbose = kSilent});
  EXPECT_EQ(files(), (std::set<std::string>{"m-01-0.13.safetensors", "m-02-12.00.safetensors"}));
  const Tensor saved = load_tensors(path("m-02-12.00.safetensors")).tensors.begin()->second;
  EXPECT_TRUE(saved.equal(model_.get_weights()[0]));
}

TEST_F(Callbacks, ModelCheckpointKeepsTheBestOnly) {
  model_.fit(batches(1),
             {.epochs = 5,
              .callbacks = {scripted("val_loss", {3, 2, 2, 4, 1}),
                            ModelCheckpoint(path("{epoch}.safetensors"), {.save_best_only = true})},
              .verbose = kSilent});
  EXPECT_EQ(files(), (std::set<std::string>{"1.safetensors", "2.safetensors", "5.safetensors"}));
  fs::remove_all(folder_);
  fs::create_directory(folder_);
  model_.fit(batches(1), {.epochs = 3,
                          .callbacks = {scripted("val_acc", {0.5, 0.8, 0.9}),
                                        ModelCheckpoint(path("{epoch}.safetensors"),
                                                        {.monitor = "val_acc",
                                                         .save_best_only = true,
                                                         .mode = "max",
                                                         .initial_value_threshold = 0.8})},
                          .verbose = kSilent});
  EXPECT_EQ(files(), (std::set<std::string>{"3.safetensors"}));
}

TEST_F(Callbacks, ModelCheckpointCountsBatchesOverEpochs) {
  compile(2);
  model_.fit(batches(4), {.epochs = 2,
                          .callbacks = {ModelCheckpoint(path("{epoch}-{batch}.safetensors"),
                                                        {.save_every_batches = 3})},
                          .verbose = kSilent});
  // Executions end after steps 2, 4, 6 and 8 of the fit.
  EXPECT_EQ(files(), (std::set<std::string>{"1-4.safetensors", "2-4.safetensors"}));
}

TEST_F(Callbacks, ModelCheckpointSaysWhatIsWrongWithAPath) {
  EXPECT_NO_THROW(ModelCheckpoint("m.keras"));
  EXPECT_NO_THROW(ModelCheckpoint("m.weights.h5"));
  EXPECT_THROW(ModelCheckpoint("m.h5"), InvalidArgument);
  EXPECT_THROW(ModelCheckpoint("m.bin"), InvalidArgument);
  EXPECT_THROW(ModelCheckpoint("m-{batch}.keras"), InvalidArgument);
  EXPECT_THROW(ModelCheckpoint("m-{batch:04d}.keras"), InvalidArgument);
  EXPECT_NO_THROW(ModelCheckpoint("m-{batch}.keras", {.save_every_batches = 2}));
  for (const char* bad : {"{epoch.safetensors", "epoch}.safetensors", "{a{b}.safetensors"}) {
    EXPECT_THROW(ModelCheckpoint{bad}, InvalidArgument) << bad;
  }
  EXPECT_THROW(ModelCheckpoint("m.safetensors", {.mode = "best"}), InvalidArgument);
  EXPECT_THROW(model_.fit(batches(1), {.callbacks = {ModelCheckpoint(path("{val}.safetensors"))},
                                       .verbose = kSilent}),
               InvalidArgument);
}

TEST_F(Callbacks, CtrlCDoesNotCutAnotherModelsEvaluation) {
  const auto before = std::signal(SIGINT, SIG_DFL);
  Sequential trained({Dense(1)}), other({Flatten()});
  trained.compile({.loss = "mse"});
  other.compile({.loss = [](const Tensor&, const Tensor& p) { return p.squeeze(-1); }});
  const Tensor x = arange(7, kFloat32).unsqueeze(1);
  double loss = 0;
  const LambdaCallback evaluate({.on_train_batch_end = [&](int64_t, Logs&) {
    ::raise(SIGINT);
    std::jthread(
        [&] { loss = other.evaluate(x, x, {.batch_size = 1, .verbose = kSilent}).number("loss"); });
  }});
  const Dataset data = batches(4);
  EXPECT_TRUE(
      trained
          .fit(data,
               {.callbacks = {evaluate}, .verbose = kSilent, .on_interrupt = OnInterrupt::kReturn})
          .interrupted);
  EXPECT_NEAR(loss, 3, 1e-6);
  const LambdaCallback stop({.on_test_begin = [] { ::raise(SIGINT); }});
  const History cut = trained.fit(data, {.validation_data = data,
                                         .callbacks = {stop},
                                         .verbose = kSilent,
                                         .on_interrupt = OnInterrupt::kReturn});
  EXPECT_TRUE(cut.interrupted);
  EXPECT_TRUE(cut.epoch.empty());
  std::signal(SIGINT, before);
}

TEST(FitDeathTest, ASecondCtrlCActsAsIfFitWereNotThere) {
  std::signal(SIGINT, SIG_DFL);  // who starts the tests may ignore it
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Sequential model({Dense(1)});
        model.compile({.loss = "mse"});
        const LambdaCallback twice(
            {.on_train_batch_end = [](int64_t, Logs&) { ::raise(SIGINT), ::raise(SIGINT); }});
        model.fit(Dataset::from_tensor_slices({ones({4, 1}), ones({4, 1})}).batch(2),
                  {.callbacks = {twice}, .verbose = kSilent});
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(FormatPath, IsPythons) {
  using internal::format_path;
  const Logs logs = {{"loss", scalar(0.00123, kFloat64)}, {"acc", scalar(0.5)}};
  EXPECT_EQ(format_path("e{epoch}b{batch:04d}", 3, 21, logs), "e3b0021");
  EXPECT_EQ(format_path("{loss:.2e} {acc:8.3f} {acc} {epoch:.1f}", 3, 0, logs),
            "1.23e-03    0.500 0.5 3.0");
  for (const char* bad : {"{loss", "{nothing}", "{loss:d}", "{loss:%n}", "{epoch:s}",
                          "{loss:.999f}", "{loss:..2f}", "{loss:*f}"}) {
    EXPECT_THROW(format_path(bad, 1, 1, logs), InvalidArgument) << bad;
  }
}

struct JaccardDistance : MetricBase {
  JaccardDistance(std::string name, Direction direction)
      : MetricBase(std::move(name)), direction_(direction) {}
  void update_state(const Tensor&, const Tensor&, const Tensor&) override {}
  Tensor result() override { return scalar(0); }
  Direction direction() const override { return direction_; }
  Direction direction_;
};

// Not by substrings: "acc" is in "jaccard".
TEST_F(Callbacks, AutomaticModeAsksTheMetric) {
  const auto metric = [](const std::string& name, Direction direction) {
    return Metric(std::make_shared<JaccardDistance>(name, direction));
  };
  model_.compile({.optimizer = SGD(),
                  .loss = "mse",
                  .metrics = {"mae", "binary_accuracy", metrics::MeanSquaredError("error"),
                              metric("jaccard_distance", Direction::kDown),
                              metric("own", Direction::kUp), metric("acc_of_mine", {})},
                  .weighted_metrics = {SparseCategoricalAccuracy("heavy")}});
  const auto grows = [&](const std::string& name) {
    internal::Monitor monitor("test", name, "auto");
    monitor.begin(model_);
    return monitor.improves(1, 0);
  };
  for (const char* name : {"binary_accuracy", "val_own", "own", "heavy", "val_heavy"}) {
    EXPECT_TRUE(grows(name)) << name;
  }
  for (const char* name : {"loss", "val_loss", "mae", "val_error", "jaccard_distance"}) {
    EXPECT_FALSE(grows(name)) << name;
  }
  for (const char* name : {"accuracy", "nothing", "acc_of_mine"}) {
    int epochs = 0;
    const LambdaCallback count({.on_epoch_end = [&](int, Logs&) { ++epochs; }});
    for (const Callback& callback : std::vector<Callback>{
             EarlyStopping({.monitor = name}),
             ModelCheckpoint(path("x.safetensors"), {.monitor = name, .save_best_only = true})}) {
      testing::expect_error<InvalidArgument>(
          {"expected mode \"min\" or \"max\" for \"" + std::string(name) + "\", got \"auto\"",
           model_.name()},
          [&] {
            model_.fit(batches(1), {.callbacks = {callback, count}, .verbose = kSilent});
          });
    }
    EXPECT_EQ(epochs, 0) << "known before the first epoch";
  }
}

TEST_F(Callbacks, ModelCheckpointMakesFolders) {
  const auto fit = [&](const std::string& file) {
    model_.fit(batches(1), {.callbacks = {ModelCheckpoint(file)}, .verbose = kSilent});
  };
  fit(path("a/b/{epoch}/w.safetensors"));
  EXPECT_TRUE(fs::exists(path("a/b/1/w.safetensors")));
  std::ofstream(path("file")) << "x";
  int epochs = 0;
  const LambdaCallback count({.on_epoch_end = [&](int, Logs&) { ++epochs; }});
  testing::expect_error<Error>({"failed to make the folder", path("file/c")}, [&] {
    model_.fit(batches(1), {.callbacks = {count, ModelCheckpoint(path("file/c/w.safetensors"))},
                            .verbose = kSilent});
  });
  EXPECT_EQ(epochs, 0) << "known before the first epoch";
}

TEST_F(Callbacks, FitPrintsOneLineAnEpochWhereThereIsNoTerminal) {
  ::testing::internal::CaptureStdout();
  model_.fit(batches(3), {.epochs = 2, .validation_data = batches(1), .verbose = Verbose::kLine});
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(text.substr(0, 10), "Epoch 1/2\n");
  EXPECT_NE(text.find("\n3/3 - 0s - "), std::string::npos) << text;
  EXPECT_NE(text.find("/step - loss: "), std::string::npos) << text;
  EXPECT_NE(text.find(" - val_loss: "), std::string::npos) << text;
  EXPECT_EQ(text.find('\b'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  ::testing::internal::CaptureStdout();
  model_.evaluate(batches(3), {.verbose = Verbose::kBar});
  const std::string bar = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(bar.substr(0, 4), "3/3 ") << bar;  // of a bar in a file the end of it
  EXPECT_EQ(bar.find_first_of("\x1b\r\b"), std::string::npos) << bar;
  EXPECT_EQ(bar.back(), '\n');
}

}  // namespace
}  // namespace cohort::keras
