// SPDX-License-Identifier: Apache-2.0
//
// Normalisation, with the names, options and defaults of Keras 3.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/keras/layer.h"

namespace cohort {
class ReplicaContext;
}

namespace cohort::keras {

struct BatchNormalizationOptions {
  int64_t axis = -1;  ///< Of the features: the last, or 1 for channels first.
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Initializer moving_mean_initializer = "zeros";
  Initializer moving_variance_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  /// Statistics over the batches of all replicas of all workers, which meet in every call while
  /// training, and again in its backward pass.
  bool synchronized = false;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("axis", c.axis);
    f("momentum", c.momentum);
    f("epsilon", c.epsilon);
    f("center", c.center);
    f("scale", c.scale);
    f("beta_initializer", c.beta_initializer);
    f("gamma_initializer", c.gamma_initializer);
    f("moving_mean_initializer", c.moving_mean_initializer);
    f("moving_variance_initializer", c.moving_variance_initializer);
    f("beta_regularizer", c.beta_regularizer);
    f("gamma_regularizer", c.gamma_regularizer);
    f("beta_constraint", c.beta_constraint);
    f("gamma_constraint", c.gamma_constraint);
    f("synchronized", c.synchronized);
    f.newer("renorm", false);
    f.newer("renorm_clipping", nullptr);
    f.newer("renorm_momentum", 0.99);
  }
};

/// Of BatchNormalization, see core.h.
class BatchNormalizationLayer : public LayerImpl<BatchNormalizationOptions> {
 public:
  explicit BatchNormalizationLayer(BatchNormalizationOptions options);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  bool supports_masking() const override { return true; }

 private:
  Variable statistic(const char* name, const Initializer& initializer);
  bool takes_narrow(const Tensor& input, const CallArgs& args) const;
  Tensor train(const Tensor& x);
  Tensor train_on_device(const Tensor& x) const;
  Tensor train_synchronized(const Tensor& x, const ReplicaContext& replicas);
  Tensor train_masked(const Tensor& x, const Tensor& counts, const ReplicaContext& replicas);
  Tensor counted_places(const Tensor& input, const CallArgs& args) const;
  Tensor scaled(const Tensor& centered, const Tensor& variance) const;
  Tensor infer(const Tensor& x) const;
  void keep_moving() const;
  void update_moving(const Tensor& mean, const Tensor& variance) const;

  int64_t axis_ = 0;
  int64_t rank_ = 0;
  int64_t channels_ = 0;
  DType dtype_ = kFloat32;
  DType output_dtype_ = kFloat32;
  Variable gamma_, beta_, moving_mean_, moving_variance_;
};

/// (x - mean) / sqrt(variance + epsilon) * gamma + beta, over all axes but `axis`: statistics of
/// this replica's batch, or of all replicas' (synchronized), while training (and not frozen), else
/// the moving ones. Rows count alike, wherever they are: a replica with fewer of them counts less.
/// The moving statistics are kOnRead and kMean: replicas keep their own, a read averages them.
/// With a mask only the positions that count enter the statistics; all positions are normalized
/// with them, and the mask is passed on.
/// An empty batch leaves the moving statistics alone, and so does one whose mask leaves nothing
/// (where Keras takes 0 for mean and variance), and a step that fails: what a run has moved since
/// its last update of weights is put back if the run throws.
/// Errors: InvalidArgument for a mask whose rank is not the input's less one.
/// TF: keras.layers.BatchNormalization.
class BatchNormalization : public Layer {
 public:
  explicit BatchNormalization(BatchNormalizationOptions options = {});
};

}  // namespace cohort::keras
