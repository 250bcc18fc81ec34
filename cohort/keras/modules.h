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
#include "cohort/keras/stft.h"

namespace cohort::keras {

namespace layers {
using keras::Activation;
using keras::ActivityRegularization;
using keras::AdaptiveAveragePooling1D;
using keras::AdaptiveAveragePooling2D;
using keras::AdaptiveAveragePooling3D;
using keras::AdaptiveMaxPooling1D;
using keras::AdaptiveMaxPooling2D;
using keras::AdaptiveMaxPooling3D;
using keras::Add;
using keras::AdditiveAttention;
using keras::AlphaDropout;
using keras::Attention;
using keras::AugMix;
using keras::AutoContrast;
using keras::Average;
using keras::AveragePooling1D;
using keras::AveragePooling2D;
using keras::AveragePooling3D;
using keras::BatchNormalization;
using keras::Bidirectional;
using keras::CategoryEncoding;
using keras::CenterCrop;
using keras::Concatenate;
using keras::ContrastLimitedAdaptiveHistogramEqualization;
using keras::Conv1D;
using keras::Conv1DTranspose;
using keras::Conv2D;
using keras::Conv2DTranspose;
using keras::Conv3D;
using keras::Conv3DTranspose;
using keras::ConvLSTM1D;
using keras::ConvLSTM2D;
using keras::ConvLSTM3D;
using keras::Cropping1D;
using keras::Cropping2D;
using keras::Cropping3D;
using keras::CutMix;
using keras::Dense;
using keras::DepthwiseConv1D;
using keras::DepthwiseConv2D;
using keras::Discretization;
using keras::Dot;
using keras::Dropout;
using keras::DynamicEmbedding;
using keras::EinsumDense;
using keras::ELU;
using keras::Embedding;
using keras::Equalization;
using keras::Flatten;
using keras::GaussianDropout;
using keras::GaussianNoise;
using keras::GlobalAveragePooling1D;
using keras::GlobalAveragePooling2D;
using keras::GlobalAveragePooling3D;
using keras::GlobalMaxPooling1D;
using keras::GlobalMaxPooling2D;
using keras::GlobalMaxPooling3D;
using keras::GroupedQueryAttention;
using keras::GroupNormalization;
using keras::GroupQueryAttention;
using keras::GRU;
using keras::GRUCell;
using keras::HashedCrossing;
using keras::Hashing;
using keras::InputLayer;
using keras::IntegerLookup;
using keras::Layer;
using keras::LayerNormalization;
using keras::LeakyReLU;
using keras::LSTM;
using keras::LSTMCell;
using keras::Masking;
using keras::Maximum;
using keras::MaxPooling1D;
using keras::MaxPooling2D;
using keras::MaxPooling3D;
using keras::MelSpectrogram;
using keras::Minimum;
using keras::MixUp;
using keras::MultiHeadAttention;
using keras::Multiply;
using keras::Normalization;
using keras::Permute;
using keras::Pipeline;
using keras::PReLU;
using keras::RandAugment;
using keras::RandomBrightness;
using keras::RandomColorDegeneration;
using keras::RandomColorJitter;
using keras::RandomContrast;
using keras::RandomCrop;
using keras::RandomElasticTransform;
using keras::RandomErasing;
using keras::RandomFlip;
using keras::RandomGaussianBlur;
using keras::RandomGrayscale;
using keras::RandomHue;
using keras::RandomInvert;
using keras::RandomPerspective;
using keras::RandomPosterization;
using keras::RandomRotation;
using keras::RandomSaturation;
using keras::RandomSharpness;
using keras::RandomShear;
using keras::RandomTranslation;
using keras::RandomZoom;
using keras::ReLU;
using keras::RepeatVector;
using keras::Rescaling;
using keras::Reshape;
using keras::Resizing;
using keras::ReversibleEmbedding;
using keras::RMSNormalization;
using keras::RNN;
using keras::SeparableConv1D;
using keras::SeparableConv2D;
using keras::SimpleRNN;
using keras::SimpleRNNCell;
using keras::Softmax;
using keras::Solarization;
using keras::SpatialDropout1D;
using keras::SpatialDropout2D;
using keras::SpatialDropout3D;
using keras::SpectralNormalization;
using keras::StackedRNNCells;
using keras::STFTSpectrogram;
using keras::StringLookup;
using keras::Subtract;
using keras::TextVectorization;
using keras::TimeDistributed;
using keras::UnitNormalization;
using keras::UpSampling1D;
using keras::UpSampling2D;
using keras::UpSampling3D;
using keras::ZeroPadding1D;
using keras::ZeroPadding2D;
using keras::ZeroPadding3D;
// Keras's other names.
using AvgPool1D = keras::AveragePooling1D;
using AvgPool2D = keras::AveragePooling2D;
using AvgPool3D = keras::AveragePooling3D;
using Convolution1D = keras::Conv1D;
using Convolution1DTranspose = keras::Conv1DTranspose;
using Convolution2D = keras::Conv2D;
using Convolution2DTranspose = keras::Conv2DTranspose;
using Convolution3D = keras::Conv3D;
using Convolution3DTranspose = keras::Conv3DTranspose;
using GlobalAvgPool1D = keras::GlobalAveragePooling1D;
using GlobalAvgPool2D = keras::GlobalAveragePooling2D;
using GlobalAvgPool3D = keras::GlobalAveragePooling3D;
using GlobalMaxPool1D = keras::GlobalMaxPooling1D;
using GlobalMaxPool2D = keras::GlobalMaxPooling2D;
using GlobalMaxPool3D = keras::GlobalMaxPooling3D;
using MaxPool1D = keras::MaxPooling1D;
using MaxPool2D = keras::MaxPooling2D;
using MaxPool3D = keras::MaxPooling3D;
using SeparableConvolution1D = keras::SeparableConv1D;
using SeparableConvolution2D = keras::SeparableConv2D;
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
using keras::STFT;
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
using keras::CSVLogger;
using keras::EarlyStopping;
using keras::LambdaCallback;
using keras::LearningRateScheduler;
using keras::ModelCheckpoint;
using keras::Plot;
using keras::ReduceLROnPlateau;
using keras::RemoteMonitor;
using keras::SwapEMAWeights;
using keras::TensorBoard;
using keras::TerminateOnNaN;
}  // namespace callbacks

namespace models {
using keras::load_model;
using keras::Model;
using keras::model_from_json;
using keras::Sequential;
}  // namespace models

}  // namespace cohort::keras
