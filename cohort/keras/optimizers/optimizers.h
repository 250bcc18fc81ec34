// SPDX-License-Identifier: Apache-2.0
//
// The optimizers of Keras 3, with its formulas and defaults (cohort/update_rules has them).
//
//   keras::Adam({.learning_rate = 1e-3, .global_clipnorm = 1.0});
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/optimizers/optimizer.h"

namespace cohort::keras {

// What all of them take besides their rule's numbers:
//   weight_decay     w -= w * weight_decay * learning rate before the rule;
//   exclude_from_weight_decay   not for variables whose name holds one of these;
//   clipnorm, clipvalue, global_clipnorm   at most one, 0 for none: of the whole gradient;
//   use_ema              keep moving averages of the variables, over updates; fit() ends with them
//                        in the variables, and after every ema_overwrite_frequency updates they
//                        are put there;
//   gradient_accumulation_steps   so many calls of apply_gradients are one update, with the mean of
//                        their gradients. Replicas communicate at the last of them only;
//   lazy_rows            what a step does to the rows of a table that its IndexedSlices (the
//                        gradient of embedding_lookup) do not name. The rows of all replicas are
//                        united, and repeated ones added once, in replica order.
//     false: what a gradient of zero does, as Keras 3 (Adam.update_step): slots of every row decay,
//       momentum goes on moving it, weight decay shrinks it. SGD without momentum and Adagrad leave
//       such rows as they are, to the bit; without weight decay, clipnorm and global_clipnorm a
//       step of theirs touches the named rows only. (Not Ftrl: it computes rows anew, and makes
//       those that never had a gradient 0.)
//     true: nothing. Slots, momentum and weight decay wait until a row is named again, and a step
//       costs the named rows, whatever the table's size. As TensorFlow's sparse kernels
//       (ResourceSparseApplyKerasMomentum, ...Adagrad, ...Adadelta, ...RMSProp, ...Ftrl) and, for
//       Adam, tfa.optimizers.LazyAdam and torch.optim.SparseAdam; tf.compat.v1.train.Adam is not
//       lazy. Norms are those of the named rows. use_ema and constraints still pass over all rows.
//       Between workers only the named rows travel, with their ids.
//
// Errors, of all: InvalidArgument that names option, range and number. None may be NaN or infinite.
// Rates, weight_decay, epsilon, initial_accumulator_value, Ftrl's strengths and beta are 0 or more,
// clips above 0, learning_rate_power is 0 or less; momentum, rho and ema_momentum are in [0, 1],
// beta_1 and beta_2 in [0, 1). 1 itself may be Nadam's beta_1, Adamax's beta_2 and both of Lion's,
// whose beta_1 may not be 0.
// Beyond these a step makes weights NaN, or changes nothing.

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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("momentum", c.momentum);
    f("nesterov", c.nesterov);
  }
};

class SGD : public Optimizer {
 public:
  explicit SGD(SGDOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit SGD(std::initializer_list<N>) : SGD() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("beta_1", c.beta_1);
    f("beta_2", c.beta_2);
    f("epsilon", c.epsilon);
    f("amsgrad", c.amsgrad);
  }
};

class Adam : public Optimizer {
 public:
  explicit Adam(AdamOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Adam(std::initializer_list<N>) : Adam() {}
};

/// Adam with a weight decay of 0.004 unless another is given.
class AdamW : public Optimizer {
 public:
  explicit AdamW(AdamOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit AdamW(std::initializer_list<N>) : AdamW() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("rho", c.rho);
    f("momentum", c.momentum);
    f("epsilon", c.epsilon);
    f("centered", c.centered);
  }
};

class RMSprop : public Optimizer {
 public:
  explicit RMSprop(RMSpropOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit RMSprop(std::initializer_list<N>) : RMSprop() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("initial_accumulator_value", c.initial_accumulator_value);
    f("epsilon", c.epsilon);
  }
};

class Adagrad : public Optimizer {
 public:
  explicit Adagrad(AdagradOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Adagrad(std::initializer_list<N>) : Adagrad() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("rho", c.rho);
    f("epsilon", c.epsilon);
  }
};

class Adadelta : public Optimizer {
 public:
  explicit Adadelta(AdadeltaOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Adadelta(std::initializer_list<N>) : Adadelta() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("beta_1", c.beta_1);
    f("beta_2", c.beta_2);
    f("epsilon", c.epsilon);
  }
};

class Adamax : public Optimizer {
 public:
  explicit Adamax(AdamaxOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Adamax(std::initializer_list<N>) : Adamax() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("beta_1", c.beta_1);
    f("beta_2", c.beta_2);
    f("epsilon", c.epsilon);
  }
};

class Nadam : public Optimizer {
 public:
  explicit Nadam(NadamOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Nadam(std::initializer_list<N>) : Nadam() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("learning_rate_power", c.learning_rate_power);
    f("initial_accumulator_value", c.initial_accumulator_value);
    f("l1_regularization_strength", c.l1_regularization_strength);
    f("l2_regularization_strength", c.l2_regularization_strength);
    f("l2_shrinkage_regularization_strength", c.l2_shrinkage_regularization_strength);
    f("beta", c.beta);
  }
};

class Ftrl : public Optimizer {
 public:
  explicit Ftrl(FtrlOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Ftrl(std::initializer_list<N>) : Ftrl() {}
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
  bool lazy_rows = false;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("beta_1", c.beta_1);
    f("beta_2", c.beta_2);
  }
};

class Lion : public Optimizer {
 public:
  explicit Lion(LionOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Lion(std::initializer_list<N>) : Lion() {}
};

}  // namespace cohort::keras
