// SPDX-License-Identifier: Apache-2.0
//
// Configs against those of real Keras: golden/configs.json, which golden/write_configs.py writes.
#include <gtest/gtest.h>

#include <functional>

#include "cohort/base/error.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/test_golden.h"

namespace cohort::keras {
namespace {

using testing::without_newer;

const Config& golden(const std::string& name) {
  static const Config all = testing::read_golden(COHORT_GOLDEN "/configs.json");
  return all.at(name);
}

struct Case {
  const char* name;
  std::function<Config()> make;
};

template <class T>
Case of(const char* name, T object) {
  return {name, [object] { return object.serialize(); }};
}

std::vector<Case> small_cases() {
  return {
      of("zeros", Zeros()),
      of("ones", Ones()),
      of("constant", Constant(2.5)),
      of("identity", Identity()),
      of("orthogonal", Orthogonal(2, 3)),
      of("random_normal", RandomNormal({.seed = 1})),
      of("truncated_normal", TruncatedNormal({.mean = 0.5, .stddev = 0.25})),
      of("random_uniform", RandomUniform({.minval = -1, .maxval = 2})),
      of("variance_scaling", VarianceScaling({.scale = 2,
                                              .mode = FanMode::kFanOut,
                                              .distribution = Distribution::kUntruncatedNormal,
                                              .seed = 7})),
      of("glorot_uniform", GlorotUniform(3)),
      of("glorot_normal", GlorotNormal()),
      of("he_uniform", HeUniform()),
      of("he_normal", Initializer("he_normal")),
      of("lecun_uniform", LecunUniform()),
      of("lecun_normal", LecunNormal()),
      of("l1", L1(0.5)),
      of("l2", L2(0.25)),
      of("l1_l2", L1L2(0.5, 0.125)),
      of("non_neg", NonNeg()),
      of("max_norm", MaxNorm(3, 1)),
      of("unit_norm", UnitNorm(1)),
      of("min_max_norm", MinMaxNorm({.min_value = 0.5, .max_value = 2, .rate = 0.75, .axis = 1})),
  };
}

std::vector<Case> layer_cases() {
  return {
      of("dense", Dense(4, {.name = "x"})),
      of("dense_full", Dense(4, {.activation = "relu",
                                 .use_bias = false,
                                 .kernel_initializer = "he_normal",
                                 .bias_initializer = Constant(0.5),
                                 .kernel_regularizer = L2(0.25),
                                 .bias_regularizer = L1(0.5),
                                 .kernel_constraint = MaxNorm(3),
                                 .bias_constraint = "non_neg",
                                 .dtype = kFloat64,
                                 .name = "x",
                                 .trainable = false})),
      of("conv2d", Conv2D(8, {3, 5}, {.name = "x"})),
      of("conv2d_full", Conv2D(8, 3,
                               {.strides = 2,
                                .padding = "same",
                                .data_format = "channels_first",
                                .groups = 2,
                                .activation = "softmax",
                                .use_bias = false,
                                .name = "x"})),
      of("flatten", Flatten({.name = "x"})),
      of("reshape", Reshape({2, -1}, {.name = "x"})),
      of("activation", Activation("tanh", {.name = "x"})),
      of("re_lu", ReLU({.max_value = 6, .negative_slope = 0.25, .threshold = 0.5, .name = "x"})),
      of("re_lu_default", ReLU({.name = "x"})),
      of("softmax", Softmax({.axis = 1, .name = "x"})),
      of("dropout", Dropout(0.5, {.name = "x"})),
      of("dropout_full",
         Dropout(0.25, {.noise_shape = Shape{kUnknownDim, 1, 3}, .seed = 5, .name = "x"})),
      of("rescaling", Rescaling(0.5, {.offset = -1, .name = "x"})),
      of("input_layer", InputLayer({3, 4}, {.name = "x"})),
      of("input_layer_batch", InputLayer({3}, {.batch_size = 7, .name = "x", .dtype = kInt32})),
      of("batch_normalization", BatchNormalization({.name = "x"})),
      of("batch_normalization_full", BatchNormalization({.axis = 1,
                                                         .momentum = 0.5,
                                                         .epsilon = 0.25,
                                                         .center = false,
                                                         .scale = false,
                                                         .gamma_regularizer = L2(0.25),
                                                         .name = "x"})),
      of("max_pooling2d", MaxPooling2D(2, {.name = "x"})),
      of("max_pooling2d_full",
         MaxPooling2D({3, 2}, {.strides = 1, .padding = "same", .name = "x"})),
      of("average_pooling2d", AveragePooling2D(2, {.data_format = "channels_first", .name = "x"})),
      of("global_average_pooling2d", GlobalAveragePooling2D({.keepdims = true, .name = "x"})),
  };
}

std::vector<Case> training_cases() {
  return {
      of("sparse_categorical_crossentropy", SparseCategoricalCrossentropy({.from_logits = true})),
      of("categorical_crossentropy", CategoricalCrossentropy({.label_smoothing = 0.125})),
      of("binary_crossentropy", BinaryCrossentropy({.reduction = Reduction::kSum})),
      of("mean_squared_error_loss", MeanSquaredError({.name = "x"})),
      of("mean_absolute_error_loss", MeanAbsoluteError()),
      of("huber", Huber()),
      of("mean", Mean()),
      of("sum", Sum("x")),
      of("accuracy", Accuracy()),
      of("binary_accuracy", BinaryAccuracy("binary_accuracy", 0.25)),
      of("categorical_accuracy", CategoricalAccuracy()),
      of("sparse_categorical_accuracy", SparseCategoricalAccuracy("x")),
      of("top_k", TopKCategoricalAccuracy(3)),
      of("sparse_top_k", SparseTopKCategoricalAccuracy()),
      of("mean_squared_error", metrics::MeanSquaredError()),
      of("mean_absolute_error", metrics::MeanAbsoluteError()),
      of("exponential_decay", ExponentialDecay(0.5, 10, 0.25, {.staircase = true})),
      of("inverse_time_decay", InverseTimeDecay(0.5, 10, 0.25)),
      of("piecewise", PiecewiseConstantDecay({1, 2}, {0.5, 0.25, 0.125})),
      of("polynomial_decay", PolynomialDecay(0.5, 10, {0.125, 2, true})),
      of("cosine_decay", CosineDecay(0.5, 10, {0.25, 0.75, 3})),
      of("sgd", SGD({.learning_rate = 0.25, .momentum = 0.5, .nesterov = true, .name = "x"})),
      of("adam", Adam({.learning_rate = 0.25,
                       .amsgrad = true,
                       .clipnorm = 1,
                       .use_ema = true,
                       .ema_overwrite_frequency = 5,
                       .gradient_accumulation_steps = 4,
                       .name = "x"})),
      of("adam_schedule", Adam({.learning_rate = CosineDecay(0.5, 10), .name = "x"})),
      of("adam_w", AdamW({.learning_rate = 0.25, .name = "x"})),
      of("rmsprop", RMSprop({.learning_rate = 0.25, .centered = true, .name = "x"})),
      of("adagrad", Adagrad({.learning_rate = 0.25, .name = "x"})),
      of("adadelta", Adadelta({.learning_rate = 0.25, .name = "x"})),
      of("adamax", Adamax({.learning_rate = 0.25, .clipvalue = 0.5, .name = "x"})),
      of("nadam", Nadam({.learning_rate = 0.25, .name = "x"})),
      of("ftrl", Ftrl({.learning_rate = 0.25, .beta = 0.5, .name = "x"})),
      of("lion", Lion({.learning_rate = 0.25, .global_clipnorm = 2, .name = "x"})),
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> all = small_cases();
  for (const auto& more : {layer_cases(), training_cases()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

/// Reads an object of any kind and writes it again.
Config again(const Config& config) {
  const std::string& module = config.text("module");
  if (module == "keras.initializers") return Initializer::deserialize(config).serialize();
  if (module == "keras.regularizers") return Regularizer::deserialize(config).serialize();
  if (module == "keras.constraints") return Constraint::deserialize(config).serialize();
  if (module == "keras.losses") return Loss::deserialize(config).serialize();
  if (module == "keras.metrics") return Metric::deserialize(config).serialize();
  if (module == "keras.optimizers") return Optimizer::deserialize(config).serialize();
  if (module == "keras.optimizers.schedules") return LearningRate::deserialize(config).serialize();
  return Layer::deserialize(config).serialize();
}

TEST(GoldenConfigs, SayWhatKerasSays) {
  for (const Case& one : all_cases()) {
    EXPECT_EQ(one.make(), without_newer(golden(one.name))) << one.name;
  }
}

TEST(GoldenConfigs, KerasObjectsAreRead) {
  for (const Case& one : all_cases()) {
    EXPECT_EQ(again(golden(one.name)), without_newer(golden(one.name))) << one.name;
  }
}

Sequential whole_model() {
  Sequential model({InputLayer({8, 8, 3}, {.name = "in"}), Rescaling(0.5, {.name = "a"}),
                    Conv2D(4, 3, {.name = "b"}), BatchNormalization({.name = "c"}),
                    MaxPooling2D(2, {.name = "d"}), Dropout(0.5, {.name = "e"}),
                    Flatten({.name = "f"}), Dense(10, {.activation = "softmax", .name = "g"})},
                   "net");
  model.compile({.optimizer = Adam({.learning_rate = 0.25, .name = "o"}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .weighted_metrics = {SparseCategoricalAccuracy("w")},
                 .steps_per_execution = 2});
  return model;
}

TEST(GoldenConfigs, ModelsSayWhatKerasSays) {
  EXPECT_EQ(Config::parse_json(whole_model().to_json()), without_newer(golden("model")));
  const Sequential unbuilt({Flatten({.name = "f"}), Dense(3, {.name = "g"})}, "net");
  EXPECT_EQ(unbuilt.serialize(), without_newer(golden("model_unbuilt")));
  const Sequential nested(
      {InputLayer({6}, {.name = "in"}),
       std::make_shared<Sequential>(std::vector<Layer>{Dense(4, {.name = "a"})}, "inner"),
       Dense(2, {.name = "b"})},
      "net");
  EXPECT_EQ(nested.serialize(), without_newer(golden("model_nested")));
}

TEST(GoldenConfigs, ModelsOfKerasAreReadAndTrained) {
  for (const char* name : {"model", "model_unbuilt", "model_nested"}) {
    const auto model = model_from_json(golden(name).to_json());
    EXPECT_EQ(model->serialize(), without_newer(golden(name))) << name;
  }
  const auto model = model_from_json(golden("model").to_json());
  EXPECT_TRUE(model->built());
  EXPECT_EQ(model->optimizer().learning_rate(), 0.25);
  const History history = model->fit(ones({8, 8, 8, 3}), zeros({8}, kInt64),
                                     {.epochs = 1, .batch_size = 4, .verbose = Verbose::kSilent});
  EXPECT_EQ(history.history.count("accuracy"), 1U);
}

TEST(GoldenConfigs, ACompiledModelSaysTheSameAfterTraining) {
  Sequential model = whole_model();
  const Config before = model.serialize();
  model.fit(ones({8, 8, 8, 3}), zeros({8}, kInt64),
            {.epochs = 1, .batch_size = 4, .verbose = Verbose::kSilent});
  EXPECT_EQ(model.serialize(), before);
}

}  // namespace
}  // namespace cohort::keras
