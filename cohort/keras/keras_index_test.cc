// SPDX-License-Identifier: Apache-2.0
//
// Keras's index: every name of it is here, or refused with a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <type_traits>

#include "cohort/base/error.h"
#include "cohort/keras/modules.h"

namespace cohort::keras {
namespace {

using Refused = std::map<std::string, std::string>;

void expect_known(const std::vector<std::string>& index, const Refused& refused,
                  const std::function<bool(const std::string&)>& is_known) {
  for (const std::string& name : index) {
    EXPECT_NE(is_known(name), refused.contains(name)) << name;
  }
}

bool does_not_throw(const std::function<void()>& make) {
  try {
    make();
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

/// One that cannot be made without numbers is known as well.
template <class Base>
bool is_class(const std::string& name) {
  try {
    return internal::class_table<Base>().find(name) != nullptr;
  } catch (const InvalidArgument&) {
    return true;
  } catch (const Unimplemented&) {
    return false;
  }
}

// dir(keras.losses) of Keras 3.15, without deserialize, get and serialize.
TEST(KerasIndex, Losses) {
  expect_known({"BinaryCrossentropy",
                "BinaryFocalCrossentropy",
                "CTC",
                "CategoricalCrossentropy",
                "CategoricalFocalCrossentropy",
                "CategoricalGeneralizedCrossEntropy",
                "CategoricalHinge",
                "Circle",
                "CosineSimilarity",
                "Dice",
                "Hinge",
                "Huber",
                "KLDivergence",
                "LogCosh",
                "MeanAbsoluteError",
                "MeanAbsolutePercentageError",
                "MeanSquaredError",
                "MeanSquaredLogarithmicError",
                "Poisson",
                "SparseCategoricalCrossentropy",
                "SquaredHinge",
                "Tversky",
                "binary_crossentropy",
                "binary_focal_crossentropy",
                "categorical_crossentropy",
                "categorical_focal_crossentropy",
                "categorical_generalized_cross_entropy",
                "categorical_hinge",
                "circle",
                "cosine_similarity",
                "ctc",
                "dice",
                "hinge",
                "huber",
                "kl_divergence",
                "log_cosh",
                "mean_absolute_error",
                "mean_absolute_percentage_error",
                "mean_squared_error",
                "mean_squared_logarithmic_error",
                "poisson",
                "sparse_categorical_crossentropy",
                "squared_hinge",
                "tversky"},
               {}, [](const std::string& name) { return does_not_throw([&] { Loss{name}; }); });
}

TEST(KerasIndex, Metrics) {
  expect_known(
      {"AUC",
       "Accuracy",
       "BinaryAccuracy",
       "BinaryCrossentropy",
       "BinaryIoU",
       "CategoricalAccuracy",
       "CategoricalCrossentropy",
       "CategoricalHinge",
       "ConcordanceCorrelation",
       "CosineSimilarity",
       "F1Score",
       "FBetaScore",
       "FalseNegatives",
       "FalsePositives",
       "Hinge",
       "IoU",
       "KLDivergence",
       "LogCoshError",
       "Mean",
       "MeanAbsoluteError",
       "MeanAbsolutePercentageError",
       "MeanIoU",
       "MeanMetricWrapper",
       "MeanSquaredError",
       "MeanSquaredLogarithmicError",
       "OneHotIoU",
       "OneHotMeanIoU",
       "PearsonCorrelation",
       "Poisson",
       "Precision",
       "PrecisionAtRecall",
       "R2Score",
       "Recall",
       "RecallAtPrecision",
       "RootMeanSquaredError",
       "SensitivityAtSpecificity",
       "SparseCategoricalAccuracy",
       "SparseCategoricalCrossentropy",
       "SparseTopKCategoricalAccuracy",
       "SpecificityAtSensitivity",
       "SquaredHinge",
       "Sum",
       "TopKCategoricalAccuracy",
       "TrueNegatives",
       "TruePositives"},
      {{"MeanMetricWrapper", "a function has no config; the class is keras::MeanMetricWrapper"}},
      is_class<MetricBase>);
}

TEST(KerasIndex, MetricFunctions) {
  expect_known({"binary_accuracy",
                "binary_crossentropy",
                "binary_focal_crossentropy",
                "categorical_accuracy",
                "categorical_crossentropy",
                "categorical_focal_crossentropy",
                "categorical_hinge",
                "concordance_correlation",
                "hinge",
                "huber",
                "kl_divergence",
                "log_cosh",
                "mean_absolute_error",
                "mean_absolute_percentage_error",
                "mean_squared_error",
                "mean_squared_logarithmic_error",
                "pearson_correlation",
                "poisson",
                "sparse_categorical_accuracy",
                "sparse_categorical_crossentropy",
                "sparse_top_k_categorical_accuracy",
                "squared_hinge",
                "top_k_categorical_accuracy"},
               {}, [](const std::string& name) {
                 return does_not_throw([&] { Metric{name}.resolve({2, 3}, {2, 3}); });
               });
}

// dir() of keras.activations, initializers, regularizers, constraints, optimizers and schedules.
TEST(KerasIndex, Activations) {
  const std::vector<std::string> here = activation_names();
  expect_known({"celu",           "elu",          "exponential", "gelu",        "glu",
                "hard_shrink",    "hard_sigmoid", "hard_silu",   "hard_swish",  "hard_tanh",
                "leaky_relu",     "linear",       "log_sigmoid", "log_softmax", "mish",
                "relu",           "relu6",        "selu",        "sigmoid",     "silu",
                "soft_shrink",    "softmax",      "softplus",    "softsign",    "sparse_plus",
                "sparse_sigmoid", "sparsemax",    "squareplus",  "swish",       "tanh",
                "tanh_shrink",    "threshold"},
               {{"threshold", "takes two numbers: the function is activations::threshold"}},
               [&](const std::string& name) {
                 return std::find(here.begin(), here.end(), name) != here.end();
               });
}

TEST(KerasIndex, InitializersRegularizersConstraints) {
  expect_known({"Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "Identity",
                "IdentityInitializer", "LecunNormal", "LecunUniform", "Ones", "Orthogonal",
                "OrthogonalInitializer", "RandomNormal", "RandomUniform", "STFT", "STFTInitializer",
                "TruncatedNormal", "VarianceScaling", "Zeros"},
               {}, is_class<InitializerBase>);
  expect_known({"L1", "L1L2", "L2", "OrthogonalRegularizer"}, {}, is_class<RegularizerBase>);
  expect_known({"MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm"}, {}, is_class<ConstraintBase>);
}

// dir(keras.callbacks) of Keras 3.15.
TEST(KerasIndex, Callbacks) {
  const auto one = [](auto) { return true; };
  const std::map<std::string, bool> here = {
      {"BackupAndRestore", one(std::type_identity<callbacks::BackupAndRestore>())},
      {"CSVLogger", one(std::type_identity<callbacks::CSVLogger>())},
      {"Callback", one(std::type_identity<callbacks::Callback>())},
      {"EarlyStopping", one(std::type_identity<callbacks::EarlyStopping>())},
      {"History", one(std::type_identity<History>())},
      {"LambdaCallback", one(std::type_identity<callbacks::LambdaCallback>())},
      {"LearningRateScheduler", one(std::type_identity<callbacks::LearningRateScheduler>())},
      {"ModelCheckpoint", one(std::type_identity<callbacks::ModelCheckpoint>())},
      {"ReduceLROnPlateau", one(std::type_identity<callbacks::ReduceLROnPlateau>())},
      {"RemoteMonitor", one(std::type_identity<callbacks::RemoteMonitor>())},
      {"SwapEMAWeights", one(std::type_identity<callbacks::SwapEMAWeights>())},
      {"TensorBoard", one(std::type_identity<callbacks::TensorBoard>())},
      {"TerminateOnNaN", one(std::type_identity<callbacks::TerminateOnNaN>())}};
  expect_known(
      {"BackupAndRestore", "CSVLogger", "Callback", "CallbackList", "EarlyStopping", "History",
       "LambdaCallback", "LearningRateScheduler", "ModelCheckpoint", "OrbaxCheckpoint",
       "ProgbarLogger", "ReduceLROnPlateau", "RemoteMonitor", "SwapEMAWeights", "TensorBoard",
       "TerminateOnNaN"},
      {{"CallbackList", "fit, evaluate and predict take lists and call them themselves"},
       {"OrbaxCheckpoint", "writes the format of a library of JAX; ModelCheckpoint and Checkpoint"},
       {"ProgbarLogger", "fit's own, by verbose"}},
      [&](const std::string& name) { return here.contains(name); });
}

TEST(KerasIndex, OptimizersAndSchedules) {
  expect_known({"Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lamb",
                "Lion", "LossScaleOptimizer", "MultiOptimizer", "Muon", "Nadam", "OptimizerMap",
                "RMSprop", "SGD", "ScheduleFreeAdamW"},
               {{"MultiOptimizer", "not every Keras 3 has it; not here yet"},
                {"OptimizerMap", "a part of MultiOptimizer"},
                {"ScheduleFreeAdamW", "not every Keras 3 has it; not here yet"}},
               is_class<OptimizerBase>);
  expect_known({"CosineDecay", "CosineDecayRestarts", "ExponentialDecay", "InverseTimeDecay",
                "PiecewiseConstantDecay", "PolynomialDecay"},
               {}, is_class<ScheduleBase>);
}

}  // namespace
}  // namespace cohort::keras
