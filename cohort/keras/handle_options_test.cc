// SPDX-License-Identifier: Apache-2.0
//
// Every handle takes its options in braces: none, or one. `{}` must not stand for an object that is
// to be copied, nor for a number, to any compiler: X({}) is X(). The test handle_options_clang
// compiles this file by Clang as well.
#include <gtest/gtest.h>

#include <concepts>
#include <string>

#include "cohort/keras/modules.h"

namespace cohort::keras {
namespace {

template <class... X>
struct Handles {};

using Losses = Handles<BinaryCrossentropy, BinaryFocalCrossentropy, CategoricalCrossentropy,
                       CategoricalFocalCrossentropy, CategoricalGeneralizedCrossEntropy,
                       CategoricalHinge, Circle, CosineSimilarity, CTC, Dice, Hinge, Huber,
                       KLDivergence, LogCosh, MeanAbsoluteError, MeanAbsolutePercentageError,
                       MeanSquaredError, MeanSquaredLogarithmicError, Poisson,
                       SparseCategoricalCrossentropy, SquaredHinge, Tversky>;
using Metrics =
    Handles<AUC, BinaryIoU, F1Score, FalseNegatives, FalsePositives, FBetaScore, Precision, Recall,
            TrueNegatives, TruePositives, metrics::BinaryCrossentropy,
            metrics::CategoricalCrossentropy, ConcordanceCorrelation, metrics::CosineSimilarity,
            PearsonCorrelation, R2Score, metrics::SparseCategoricalCrossentropy>;
using MetricsWithNames =
    Handles<Accuracy, BinaryAccuracy, CategoricalAccuracy, metrics::CategoricalHinge,
            metrics::Hinge, metrics::KLDivergence, LogCoshError, Mean, metrics::MeanAbsoluteError,
            metrics::MeanAbsolutePercentageError, metrics::MeanSquaredError,
            metrics::MeanSquaredLogarithmicError, metrics::Poisson, RootMeanSquaredError,
            SparseCategoricalAccuracy, SparseTopKCategoricalAccuracy, metrics::SquaredHinge, Sum,
            TopKCategoricalAccuracy>;
using Optimizers = Handles<Adadelta, Adafactor, Adagrad, Adam, Adamax, AdamW, Ftrl, Lamb, Lion,
                           Muon, Nadam, RMSprop, SGD>;
using Layers =
    Handles<ActivityRegularization, Add, AdditiveAttention, Attention, AugMix, AutoContrast,
            Average, BatchNormalization, Concatenate, ContrastLimitedAdaptiveHistogramEqualization,
            CutMix, ELU, Equalization, Flatten, GlobalAveragePooling1D, GlobalAveragePooling2D,
            GlobalAveragePooling3D, GlobalMaxPooling1D, GlobalMaxPooling2D, GlobalMaxPooling3D,
            GroupNormalization, layers::Identity, IntegerLookup, LayerNormalization, LeakyReLU,
            Maximum, MelSpectrogram, Minimum, MixUp, Multiply, Normalization, PReLU, RandAugment,
            RandomColorJitter, RandomElasticTransform, RandomErasing, RandomFlip,
            RandomGaussianBlur, RandomGrayscale, RandomPerspective, RandomShear, ReLU,
            RMSNormalization, Softmax, Solarization, STFTSpectrogram, StringLookup, Subtract,
            TextVectorization, UnitNormalization>;
using LayersWithNumbers =
    Handles<AveragePooling1D, AveragePooling2D, AveragePooling3D, Cropping1D, Cropping2D,
            Cropping3D, Masking, MaxPooling1D, MaxPooling2D, MaxPooling3D, RandomInvert,
            UpSampling1D, UpSampling2D, UpSampling3D, ZeroPadding1D, ZeroPadding2D, ZeroPadding3D>;

// Names of layers count.
Config without_name(Config config) {
  config.set("name", nullptr);
  return config;
}

template <class X>
void expect_none_is_default() {
  EXPECT_EQ(without_name(X({}).get_config()), without_name(X().get_config())) << X({});
}
template <class... X>
void expect_none_is_default(Handles<X...>) {
  (expect_none_is_default<X>(), ...);
}
template <class X>
void expect_name_is_option() {
  EXPECT_EQ(X({.name = "given"}).get_config().text("name"), "given");
}
template <class... X>
void expect_name_is_option(Handles<X...>) {
  (expect_name_is_option<X>(), ...);
}

TEST(HandleOptions, NoneInBracesIsNone) {
  expect_none_is_default(Losses());
  expect_none_is_default(Metrics());
  expect_none_is_default(MetricsWithNames());
  expect_none_is_default(Optimizers());
  expect_none_is_default(Layers());
  expect_none_is_default(LayersWithNumbers());
}

TEST(HandleOptions, OneAloneIsWhatItsNameSays) {
  expect_name_is_option(Losses());
  expect_name_is_option(Metrics());
  expect_name_is_option(Optimizers());
  expect_name_is_option(Layers());
}

TEST(HandleOptions, NoneInBracesIsNoNumber) {
  EXPECT_EQ(Regularizer(L1({})).get_config(), L1().get_config());
  EXPECT_EQ(L2({}).get_config(), L2().get_config());
  EXPECT_EQ(OrthogonalRegularizer({}).get_config(), OrthogonalRegularizer().get_config());
  EXPECT_EQ(MaxNorm({}).get_config(), MaxNorm().get_config());
  EXPECT_EQ(Orthogonal({}).get_config(), Orthogonal().get_config());
  EXPECT_EQ(Identity({}).get_config(), Identity().get_config());
  EXPECT_EQ(L2(0.5).get_config().at("l2").number(), 0.5);
}

// Are compiled; what they would do does not matter here.
[[maybe_unused]] void no_options_of_what_needs_arguments(const Layer& layer) {
  Dense(4, {}), Dropout(0.5, {}), Embedding(4, 2, {}), Activation("relu", {}), Reshape({2, 3}, {});
  Rescaling(2, {}), InputLayer({3}, {}), EinsumDense("ab,bc->ac", 3, {}), Permute({2, 1}, {});
  RepeatVector(2, {}), Masking(0, {}), Dot(1, {}), Hashing(3, {}), HashedCrossing(3, {});
  Conv1D(2, 3, {}), Conv2D(2, 3, {}), Conv3D(2, 3, {}), Conv2DTranspose(2, 3, {});
  DepthwiseConv2D(3, {}), SeparableConv2D(2, 3, {}), ConvLSTM2D(2, 3, {}), MaxPooling2D(2, {});
  AveragePooling2D(2, {}), UpSampling2D(2, {}), ZeroPadding2D(1, {}), Cropping2D(1, {});
  GaussianNoise(0.1, {}), GaussianDropout(0.1, {}), AlphaDropout(0.1, {});
  SpatialDropout2D(0.1, {}), SimpleRNN(2, {}), LSTM(2, {}), GRU(2, {}), SimpleRNNCell(2, {});
  LSTMCell(2, {}), GRUCell(2, {}), RNN(layer, {}), Bidirectional(layer, {});
  TimeDistributed(layer, {}), SpectralNormalization(layer, {}), Pipeline({layer}, {});
  StackedRNNCells({layer, layer}, {}), MultiHeadAttention(2, 2, {});
  GroupedQueryAttention(2, 4, 2, {}), CategoryEncoding(3, {}), Resizing(2, 2, {});
  CenterCrop(2, 2, {}), RandomCrop(2, 2, {}), RandomBrightness(0.1, {}), RandomRotation(0.1, {});
  RandomTranslation(0.1, 0.1, {}), RandomZoom(0.1, {}), RandomInvert(0.5, {});
  IoU(2, {0}, {}), MeanIoU(2, {}), OneHotIoU(2, {0}, {}), OneHotMeanIoU(2, {});
  SensitivityAtSpecificity(0.5, {}), SpecificityAtSensitivity(0.5, {});
  PrecisionAtRecall(0.5, {}), RecallAtPrecision(0.5, {}), Sequential({});
  RandomNormal({}), TruncatedNormal({}), RandomUniform({}), VarianceScaling({});
  GlorotUniform({}), GlorotNormal({}), HeUniform({}), HeNormal({}), LecunUniform({});
  LecunNormal({}), MinMaxNorm({}), UnitNorm({});
}

// GCC 12 could read lists inside of the braces as options themselves.
[[maybe_unused]] void options_that_are_lists() {
  LayerNormalization({.axis = {1, 2}}), LayerNormalization({.axis = {1}});
  RMSNormalization({.axis = {1, 2}}), UnitNormalization({.axis = {1}});
  Normalization({.axis = {1, 2}}), Normalization({.axis = {1}});
  Normalization({.mean = {1.0}, .variance = {2.0}});
  Precision({.thresholds = {0.1, 0.5}}), Precision({.thresholds = {0.1}});
  Recall({.thresholds = {0.1, 0.5}}), TruePositives({.thresholds = {0.5}});
  AUC({.thresholds = {{0.2, 0.5}}});
  BinaryIoU({.target_class_ids = {0}}), BinaryIoU({.target_class_ids = {0, 1}});
  IntegerLookup({.vocabulary = {1, 2}}), IntegerLookup({.vocabulary = {1}});
  StringLookup({.vocabulary = {"a"}}), StringLookup({.vocabulary = {"a", "b"}});
  TextVectorization({.vocabulary = {"a", "b"}}), TextVectorization({.idf_weights = {0.5}});
  Discretization({.bin_boundaries = {{0.0, 1.0}}}), RandomErasing({.scale = {0.1, 0.2}});
  Solarization({.value_range = {0, 255}}), RandomColorJitter({.value_range = {0, 255}});
  RandomColorJitter({.brightness_factor = {{0.1, 0.2}}}), Equalization({.value_range = {0, 255}});
  AutoContrast({.value_range = {0, 255}}), RandomGaussianBlur({.kernel_size = {3, 3}});
  RandomGaussianBlur({.sigma = {0.1, 1.0}}), CutMix({.factor = {0.5, 1.0}});
  ContrastLimitedAdaptiveHistogramEqualization({.tile_grid_size = {8, 8}});
  RandAugment({.value_range = {0, 255}}), AugMix({.value_range = {0, 255}});
  RandomShear({.x_factor = {0.1, 0.2}}), RandomPerspective({.factor = {0.1, 0.2}});
  RandomElasticTransform({.scale = {0.1, 0.2}}), Dice({.axis = {1, 2}}), Dice({.axis = {1}});
  Tversky({.axis = {1, 2}}), Adam({.exclude_from_weight_decay = {"bias"}});
  RemoteMonitor({.headers = {{"a", "b"}}}), RemoteMonitor({.headers = {{"a", "b"}, {"c", "d"}}});
}

[[maybe_unused]] void every_option_of_losses() {
  MeanSquaredError({.reduction = Reduction::kSum}), Huber({.delta = 2});
  Huber({.reduction = Reduction::kSum}), BinaryCrossentropy({.from_logits = true});
  BinaryCrossentropy({.label_smoothing = 0.1}), BinaryCrossentropy({.reduction = Reduction::kSum});
  SparseCategoricalCrossentropy({.from_logits = true});
  SparseCategoricalCrossentropy({.label_smoothing = 0.1});
  SparseCategoricalCrossentropy({.ignore_class = 1});
  SparseCategoricalCrossentropy({.reduction = Reduction::kSum});
  CosineSimilarity({.axis = -1}), CosineSimilarity({.reduction = Reduction::kSum});
  CategoricalCrossentropy({.from_logits = true}), Hinge({.reduction = Reduction::kNone});
}

[[maybe_unused]] void every_option_of_callbacks() {
  EarlyStopping({}), ReduceLROnPlateau({}), RemoteMonitor({}), SwapEMAWeights({}), TensorBoard({});
  TerminateOnNaN({}), CSVLogger("f", {}), ModelCheckpoint("f", {}), BackupAndRestore("d", {});
  Plot("f", {}), TensorBoard("logs", {});
  LearningRateScheduler([](int, double rate) { return rate; }, {});
  EarlyStopping({.monitor = "loss"}), EarlyStopping({.min_delta = 0.1});
  EarlyStopping({.patience = 2}), EarlyStopping({.verbose = 1}), EarlyStopping({.mode = "max"});
  EarlyStopping({.baseline = 1.0}), EarlyStopping({.restore_best_weights = true});
  EarlyStopping({.start_from_epoch = 1}), ReduceLROnPlateau({.monitor = "loss"});
  ReduceLROnPlateau({.factor = 0.5}), ReduceLROnPlateau({.patience = 2});
  ReduceLROnPlateau({.verbose = 1}), ReduceLROnPlateau({.mode = "max"});
  ReduceLROnPlateau({.min_delta = 0.1}), ReduceLROnPlateau({.cooldown = 1});
  ReduceLROnPlateau({.min_lr = 0.1}), RemoteMonitor({.root = "r"}), RemoteMonitor({.path = "p"});
  RemoteMonitor({.field = "f"}), RemoteMonitor({.path = "p"});
  RemoteMonitor({.send_as_json = true}), SwapEMAWeights({.swap_on_epoch = true});
  TensorBoard("logs", {.histogram_freq = 1}), TensorBoard("logs", {.update_freq = 1});
  TensorBoard("logs", {.write_steps_per_second = true}), TerminateOnNaN({.raise_error = true});
  CSVLogger("f", {.separator = ";"}), CSVLogger("f", {.append = true});
  ModelCheckpoint("f", {.monitor = "loss"}), ModelCheckpoint("f", {.verbose = 1});
  ModelCheckpoint("f", {.save_best_only = true}), ModelCheckpoint("f", {.mode = "max"});
  ModelCheckpoint("f", {.save_every_batches = 1});
  ModelCheckpoint("f", {.initial_value_threshold = 0.5}), BackupAndRestore("d", {.save_freq = 2});
  BackupAndRestore("d", {.delete_checkpoint = false}), BackupAndRestore("d", {.exit_fn = [] {}});
  BackupAndRestore("d", {.save_before_preemption = true}), Plot("f", {.width = 300});
  Plot("f", {.names = {"loss"}}), Plot("f", {.height = 300});
  LearningRateScheduler([](int, double rate) { return rate; }, {.verbose = 1});
  LambdaCallback({.on_train_begin = [] {}}), LambdaCallback({.on_epoch_begin = [](int) {}});
  LambdaCallback({.on_epoch_end = [](int, Logs&) {}});
}

}  // namespace
}  // namespace cohort::keras
