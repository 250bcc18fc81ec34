// SPDX-License-Identifier: Apache-2.0
//
// Optimizers whose step looks at a variable as a whole: its norm, its rows and columns. Keras 3's
// formulas and defaults.
//
//   keras::Lamb({.learning_rate = 2e-3, .weight_decay = 0.01});
//   keras::Muon({.learning_rate = 0.02, .exclude_layers = {"head"}});
//
// On parameter servers a step has two phases, statistics and then the update, over the shards of
// each variable, and gradients of rows travel as whole ones: what others push in between is not in
// the statistics, and is not lost (coordinator/parameters/remote_whole.h). With one worker and
// variables in one piece of 32,768 elements at most the bits are those of one process; else sums
// have another order. Muon's workers read the momentum of a matrix and send its update, which is
// computed there. Unimplemented with sync_replicas.
// Errors of their options are those of optimizers.h; besides, of a beta_2_decay above 0 and a
// clip_threshold of 0 or less.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/optimizers/optimizer.h"

namespace cohort::keras {

struct LambOptions {
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
  static void fields(auto& c, auto&& f) {
    f("beta_1", c.beta_1);
    f("beta_2", c.beta_2);
    f("epsilon", c.epsilon);
  }
};
/// Adam whose step is scaled, for each variable, to the norm of the variable times the rate.
class Lamb : public Optimizer {
 public:
  explicit Lamb(LambOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Lamb(std::initializer_list<N>) : Lamb() {}
};

struct AdafactorOptions {
  LearningRate learning_rate = 0.001;
  double beta_2_decay = -0.8;
  double epsilon_1 = 1e-30;
  double epsilon_2 = 1e-3;
  double clip_threshold = 1;
  bool relative_step = true;  ///< The rate is 1 / sqrt(step) at most.
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
  static void fields(auto& c, auto&& f) {
    f("beta_2_decay", c.beta_2_decay);
    f("epsilon_1", c.epsilon_1);
    f("epsilon_2", c.epsilon_2);
    f("clip_threshold", c.clip_threshold);
    f("relative_step", c.relative_step);
  }
};
/// Keeps second moments of rows and columns instead of every element's.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(AdafactorOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Adafactor(std::initializer_list<N>) : Adafactor() {}
};

struct MuonOptions {
  LearningRate learning_rate = 0.001;
  double adam_beta_1 = 0.9;
  double adam_beta_2 = 0.999;
  std::optional<double> adam_weight_decay = 0.004;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = 0.004;
  /// Parts of the names of variables that Adam trains. TF: patterns.
  std::vector<std::string> exclude_layers = {};
  bool exclude_embeddings = true;
  double muon_a = 3.4445;
  double muon_b = -4.775;
  double muon_c = 2.0315;
  double adam_lr_ratio = 1;
  double momentum = 0.95;
  int ns_steps = 5;
  bool nesterov = true;
  std::optional<double> rms_rate = 0.2;
  std::optional<double> clipnorm = {};
  std::optional<double> clipvalue = {};
  std::optional<double> global_clipnorm = {};
  std::vector<std::string> exclude_from_weight_decay = {};
  bool use_ema = false;
  double ema_momentum = 0.99;
  std::optional<int> ema_overwrite_frequency = {};
  int gradient_accumulation_steps = 1;
  std::string name = {};
  static void fields(auto& c, auto&& f) {
    f("adam_beta_1", c.adam_beta_1);
    f("adam_beta_2", c.adam_beta_2);
    f("epsilon", c.epsilon);
    f("exclude_layers", c.exclude_layers);
    f("muon_a", c.muon_a);
    f("muon_b", c.muon_b);
    f("muon_c", c.muon_c);
    f("adam_lr_ratio", c.adam_lr_ratio);
    f("momentum", c.momentum);
    f("ns_steps", c.ns_steps);
    f("nesterov", c.nesterov);
    f("exclude_embeddings", c.exclude_embeddings);
    f("adam_weight_decay", c.adam_weight_decay);
    f("rms_rate", c.rms_rate);
  }
};
/// Matrices go by the nearest orthogonal matrix to their momentum (Newton-Schulz steps), everything
/// else by Adam.
class Muon : public Optimizer {
 public:
  explicit Muon(MuonOptions options = {});
  template <internal::IsNothing N = internal::Nothing>
  explicit Muon(std::initializer_list<N>) : Muon() {}
};

}  // namespace cohort::keras
