// SPDX-License-Identifier: Apache-2.0
//
// Options in braces, each alone, after every kind of data: they must be options to every compiler.
// The test fit_options_clang compiles this file by Clang as well.
#include <gtest/gtest.h>

#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/sequential.h"
#include "cohort/strategy/strategies.h"

namespace cohort::keras {
namespace {

// A new option makes one of these fail to compile: it has to be added below, too.
[[maybe_unused]] void count_options(const FitOptions& fit, const EvaluateOptions& evaluate,
                                    const PredictOptions& predict) {
  [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] =
      fit;
  [[maybe_unused]] const auto& [e1, e2, e3, e4, e5] = evaluate;
  [[maybe_unused]] const auto& [p1, p2, p3, p4] = predict;
}

// CALL(option) is a call with that option alone.
#define COHORT_EACH_FIT_OPTION(CALL, val, x)  \
  CALL(.epochs = 0);                          \
  CALL(.epochs = 2);                          \
  CALL(.batch_size = 0);                      \
  CALL(.batch_size = 2);                      \
  CALL(.validation_data = val);               \
  CALL(.validation_data = {});                \
  CALL(.validation_data = {x, x});            \
  CALL(.validation_data = {x, x, x});         \
  CALL(.validation_data = {{x, x}, x});       \
  CALL(.callbacks = {});                      \
  CALL(.callbacks = {EarlyStopping()});       \
  CALL(.verbose = Verbose::kSilent);          \
  CALL(.steps_per_epoch = 1);                 \
  CALL(.validation_steps = 0);                \
  CALL(.validation_split = 0);                \
  CALL(.validation_split = 0.5);              \
  CALL(.validation_batch_size = 2);           \
  CALL(.validation_freq = 1);                 \
  CALL(.validation_freq = {});                \
  CALL(.validation_freq = {1});               \
  CALL(.validation_freq = {1, 5});            \
  CALL(.initial_epoch = 0);                   \
  CALL(.shuffle = false);                     \
  CALL(.class_weight = {});                   \
  CALL(.class_weight = {{0, 1.0}, {1, 2.0}}); \
  CALL(.on_interrupt = OnInterrupt::kReturn); \
  CALL(.sample_weight = x)

#define COHORT_EACH_EVALUATE_OPTION(CALL, x) \
  CALL(.batch_size = 2);                     \
  CALL(.steps = 1);                          \
  CALL(.callbacks = {EarlyStopping()});      \
  CALL(.verbose = Verbose::kSilent);         \
  CALL(.sample_weight = x)

#define COHORT_EACH_PREDICT_OPTION(CALL) \
  CALL(.batch_size = 2);                 \
  CALL(.steps = 1);                      \
  CALL(.callbacks = {EarlyStopping()});  \
  CALL(.verbose = Verbose::kSilent)

// Is compiled, for each kind of what a program has at hand; what it would do does not matter here.
[[maybe_unused]] void every_option(Sequential& model, const Dataset& data,
                                   const DistributedDataset& spread, const DataSource& source,
                                   const Tensor& x, const Element& e) {
#define COHORT_FIT(...)                \
  model.fit(data, {__VA_ARGS__});      \
  model.fit(spread, {__VA_ARGS__});    \
  model.fit(source, {__VA_ARGS__});    \
  model.fit(x, x, {__VA_ARGS__});      \
  model.fit(e, x, {__VA_ARGS__});      \
  model.fit(x, {x, x}, {__VA_ARGS__}); \
  model.fit({x, x}, x, {__VA_ARGS__}); \
  model.fit(data.batch(2), {__VA_ARGS__})
  COHORT_EACH_FIT_OPTION(COHORT_FIT, data, x);
  COHORT_EACH_FIT_OPTION(COHORT_FIT, spread, x);
  COHORT_EACH_FIT_OPTION(COHORT_FIT, data.batch(4), x);
#define COHORT_EVALUATE(...)                \
  model.evaluate(data, {__VA_ARGS__});      \
  model.evaluate(spread, {__VA_ARGS__});    \
  model.evaluate(source, {__VA_ARGS__});    \
  model.evaluate(x, x, {__VA_ARGS__});      \
  model.evaluate(e, x, {__VA_ARGS__});      \
  model.evaluate(x, {x, x}, {__VA_ARGS__}); \
  model.evaluate({x, x}, x, {__VA_ARGS__}); \
  model.evaluate(data.batch(2), {__VA_ARGS__})
  COHORT_EACH_EVALUATE_OPTION(COHORT_EVALUATE, x);
#define COHORT_PREDICT(...)             \
  model.predict(data, {__VA_ARGS__});   \
  model.predict(spread, {__VA_ARGS__}); \
  model.predict(source, {__VA_ARGS__}); \
  model.predict(x, {__VA_ARGS__});      \
  model.predict(data.batch(2), {__VA_ARGS__})
  COHORT_EACH_PREDICT_OPTION(COHORT_PREDICT);
  const FitOptions options;
  model.fit(data), model.fit(data, {}), model.fit(data, options), model.fit(x, x, options);
  model.evaluate(data), model.evaluate(data, {}), model.evaluate(x, x), model.evaluate(x, x, {});
  model.predict(data), model.predict(data, {}), model.predict(x), model.predict(x, {});
}
TEST(FitOptions, AloneAreWhatTheirNamesSay) {
  Sequential model({Dense(1, {.kernel_initializer = "zeros"})});
  model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse"});
  const Tensor x = ones({4, 1}), y = arange(4, kFloat32).unsqueeze(1);
  const Dataset train = Dataset::from_tensor_slices({x, y}).batch(2);
  const Dataset val = Dataset::from_tensor_slices({x, y + 1}).batch(2);
  EXPECT_NEAR(model.fit(train, {.validation_data = val}).at("val_loss")[0], 30 / 4.0, 1e-5);
  EXPECT_TRUE(model.fit(train, {.epochs = 0}).epoch.empty());
  EXPECT_EQ(model.fit(train, {.epochs = 2}).epoch.size(), 2u);
  const Tensor last = tensor({0, 0, 0, 1});
  EXPECT_NEAR(model.fit(x, y, {.sample_weight = last}).at("loss")[0], 9 / 4.0, 1e-5);
  EXPECT_NEAR(model.evaluate(x, y, {.sample_weight = last}).number("loss"), 9 / 4.0, 1e-5);
  EXPECT_EQ(model.predict(train, {.steps = 1}).size(0), 2);
  EXPECT_THROW(model.fit(train, {.sample_weight = last}), InvalidArgument);
}

}  // namespace
}  // namespace cohort::keras
