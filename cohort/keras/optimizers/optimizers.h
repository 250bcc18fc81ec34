// SPDX-License-Identifier: Apache-2.0
//
// The optimizers of Keras 3, with its formulas and defaults (cohort/update_rules has them).
//
//   keras::Adam({.learning_rate = 1e-3, .global_clipnorm = 1.0});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/optimizers/optimizer.h"

namespace cohort::keras {

// What all of them take besides their rule's numbers:
//   weight_decay     w -= w * weight_decay * learning rate before the rule;
//   exclude_from_weight_decay   not for variables whose name holds one of these;
//   clipnorm, clipvalue, global_clipnorm   at most one: of the gradient summed over replicas;
//   use_ema              keep moving averages of the variables, over updates; fit() ends with them
//                        in the variables, and after every ema_overwrite_frequency updates they
//                        are put there;
//   gradient_accumulation_steps   so many calls of apply_gradients are one update, with the mean of
//                        their gradients. Replicas communicate at the last of them only.

struct SGDOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

/// Errors: InvalidArgument for a momentum outside [0, 1].
class SGD : public Optimizer {
 public:
  explicit SGD(SGDOptions options = {});
};

struct AdamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

class Adam : public Optimizer {
 public:
  explicit Adam(AdamOptions options = {});
};

/// Adam with a weight decay of 0.004 unless another is given.
class AdamW : public Optimizer {
 public:
  explicit AdamW(AdamOptions options = {});
};

struct RMSpropOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

class RMSprop : public Optimizer {
 public:
  explicit RMSprop(RMSpropOptions options = {});
};

struct AdagradOptions {
  LearningRate learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

class Adagrad : public Optimizer {
 public:
  explicit Adagrad(AdagradOptions options = {});
};

struct AdadeltaOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.95;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

class Adadelta : public Optimizer {
 public:
  explicit Adadelta(AdadeltaOptions options = {});
};

struct AdamaxOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

class Adamax : public Optimizer {
 public:
  explicit Adamax(AdamaxOptions options = {});
};

struct NadamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

class Nadam : public Optimizer {
 public:
  explicit Nadam(NadamOptions options = {});
};

struct FtrlOptions {
  LearningRate learning_rate = 0.001;
  double learning_rate_power = -0.5;
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0;
  double l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0;
  double beta = 0;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

/// Errors: InvalidArgument for a power above 0, or another number below 0.
class Ftrl : public Optimizer {
 public:
  explicit Ftrl(FtrlOptions options = {});
};

struct LionOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
  std::optional<double> weight_decay = {};
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
};

/// Errors: InvalidArgument for a beta_1 outside (0, 1].
class Lion : public Optimizer {
 public:
  explicit Lion(LionOptions options = {});
};

}  // namespace cohort::keras
