// SPDX-License-Identifier: Apache-2.0
//
// Keras's modules as namespaces: keras::layers::Dense is keras::Dense.
//
//   keras::Sequential model({keras::layers::Dense(8), keras::layers::Dense(1)});
//   model.compile({.optimizer = keras::optimizers::SGD(), .loss = keras::losses::Huber()});
//
// keras::activations and keras::metrics stand with their functions and classes.
#pragma once

#include "cohort/keras/callbacks/callbacks.h"
#include "cohort/keras/constraints.h"
#include "cohort/keras/initializers.h"
#include "cohort/keras/layers/layers.h"
#include "cohort/keras/losses/losses.h"
#include "cohort/keras/metrics/metrics.h"
#include "cohort/keras/optimizers/optimizers.h"
#include "cohort/keras/optimizers/whole_variable.h"
#include "cohort/keras/regularizers.h"
#include "cohort/keras/sequential.h"

namespace cohort::keras {

namespace layers {
using keras::Activation;
using keras::AveragePooling2D;
using keras::BatchNormalization;
using keras::Bidirectional;
using keras::Conv2D;
using keras::ConvLSTM1D;
using keras::ConvLSTM2D;
using keras::ConvLSTM3D;
using keras::Dense;
using keras::Dropout;
using keras::Embedding;
using keras::Flatten;
using keras::GlobalAveragePooling2D;
using keras::GRU;
using keras::GRUCell;
using keras::InputLayer;
using keras::Layer;
using keras::LSTM;
using keras::LSTMCell;
using keras::Masking;
using keras::MaxPooling2D;
using keras::ReLU;
using keras::Rescaling;
using keras::Reshape;
using keras::RNN;
using keras::SimpleRNN;
using keras::SimpleRNNCell;
using keras::Softmax;
using keras::StackedRNNCells;
using keras::TimeDistributed;
}  // namespace layers

namespace losses {
using keras::BinaryCrossentropy;
using keras::BinaryFocalCrossentropy;
using keras::CategoricalCrossentropy;
using keras::CategoricalFocalCrossentropy;
using keras::CategoricalGeneralizedCrossEntropy;
using keras::CategoricalHinge;
using keras::Circle;
using keras::CosineSimilarity;
using keras::CTC;
using keras::Dice;
using keras::Hinge;
using keras::Huber;
using keras::KLDivergence;
using keras::LogCosh;
using keras::Loss;
using keras::MeanAbsoluteError;
using keras::MeanAbsolutePercentageError;
using keras::MeanSquaredError;
using keras::MeanSquaredLogarithmicError;
using keras::Poisson;
using keras::SparseCategoricalCrossentropy;
using keras::SquaredHinge;
using keras::Tversky;
}  // namespace losses

namespace metrics {
using keras::Accuracy;
using keras::AUC;
using keras::BinaryAccuracy;
using keras::BinaryIoU;
using keras::CategoricalAccuracy;
using keras::ConcordanceCorrelation;
using keras::F1Score;
using keras::FalseNegatives;
using keras::FalsePositives;
using keras::FBetaScore;
using keras::IoU;
using keras::LogCoshError;
using keras::Mean;
using keras::MeanIoU;
using keras::MeanMetricWrapper;
using keras::Metric;
using keras::OneHotIoU;
using keras::OneHotMeanIoU;
using keras::PearsonCorrelation;
using keras::Precision;
using keras::PrecisionAtRecall;
using keras::R2Score;
using keras::Recall;
using keras::RecallAtPrecision;
using keras::RootMeanSquaredError;
using keras::SensitivityAtSpecificity;
using keras::SparseCategoricalAccuracy;
using keras::SparseTopKCategoricalAccuracy;
using keras::SpecificityAtSensitivity;
using keras::Sum;
using keras::TopKCategoricalAccuracy;
using keras::TrueNegatives;
using keras::TruePositives;
}  // namespace metrics

namespace optimizers {
using keras::Adadelta;
using keras::Adafactor;
using keras::Adagrad;
using keras::Adam;
using keras::Adamax;
using keras::AdamW;
using keras::Ftrl;
using keras::Lamb;
using keras::Lion;
using keras::Muon;
using keras::Nadam;
using keras::Optimizer;
using keras::RMSprop;
using keras::SGD;

namespace schedules {
using keras::CosineDecay;
using keras::CosineDecayRestarts;
using keras::ExponentialDecay;
using keras::InverseTimeDecay;
using keras::PiecewiseConstantDecay;
using keras::PolynomialDecay;
}  // namespace schedules
}  // namespace optimizers

namespace initializers {
using keras::Constant;
using keras::GlorotNormal;
using keras::GlorotUniform;
using keras::HeNormal;
using keras::HeUniform;
using keras::Identity;
using keras::Initializer;
using keras::LecunNormal;
using keras::LecunUniform;
using keras::Ones;
using keras::Orthogonal;
using keras::RandomNormal;
using keras::RandomUniform;
using keras::TruncatedNormal;
using keras::VarianceScaling;
using keras::Zeros;
}  // namespace initializers

namespace regularizers {
using keras::L1;
using keras::L1L2;
using keras::L2;
using keras::OrthogonalRegularizer;
using keras::Regularizer;
}  // namespace regularizers

namespace constraints {
using keras::Constraint;
using keras::MaxNorm;
using keras::MinMaxNorm;
using keras::NonNeg;
using keras::UnitNorm;
}  // namespace constraints

namespace callbacks {
using keras::BackupAndRestore;
using keras::Callback;
using keras::EarlyStopping;
using keras::LambdaCallback;
using keras::ModelCheckpoint;
using keras::TerminateOnNaN;
}  // namespace callbacks

namespace models {
using keras::Model;
using keras::model_from_json;
using keras::Sequential;
}  // namespace models

}  // namespace cohort::keras
