// SPDX-License-Identifier: Apache-2.0
//
// Normalisation of each row by itself, with the names, options and defaults of Keras 3.
// BatchNormalization is in normalization.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::keras {

/// One axis, or several: -1, or {1, 2}.
struct AxisList {
  std::vector<int64_t> each;
  bool is_list = false;  ///< How the config has it.

  AxisList(int64_t axis) : each{axis} {}  // NOLINT: implicit by design
  AxisList(std::initializer_list<int64_t> axes) : each(axes), is_list(true) {}  // NOLINT
  bool operator==(const AxisList&) const = default;
  Config serialize() const;
  static AxisList deserialize(const Config& config);
  /// Sorted, counted from the front. Errors: InvalidArgument, prefixed by `name`, for axes that a
  /// tensor of this rank has not.
  std::vector<int64_t> of_rank(const std::string& name, int64_t rank) const;
};

struct LayerNormalizationOptions {
  AxisList axis = -1;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  bool rms_scaling = false;  ///< By the deviation alone, without mean and beta.
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("axis", c.axis);
    f("epsilon", c.epsilon);
    f("center", c.center);
    f("scale", c.scale);
    f("rms_scaling", c.rms_scaling);
    f("beta_initializer", c.beta_initializer);
    f("gamma_initializer", c.gamma_initializer);
    f("beta_regularizer", c.beta_regularizer);
    f("gamma_regularizer", c.gamma_regularizer);
    f("beta_constraint", c.beta_constraint);
    f("gamma_constraint", c.gamma_constraint);
  }
};

class LayerNormalizationLayer : public LayerImpl<LayerNormalizationOptions> {
 public:
  explicit LayerNormalizationLayer(LayerNormalizationOptions options);
  void build(const Shape& input_shape) override;
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  std::vector<int64_t> axes_;
  Variable gamma_, beta_;
};

/// (x - mean) / sqrt(variance + epsilon) * gamma + beta, over the axes of each row.
using LayerNormalization = Handle<LayerNormalizationLayer>;

struct GroupNormalizationOptions {
  int64_t groups = 32;  ///< -1: each channel by itself.
  int64_t axis = -1;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Initializer beta_initializer = "zeros";
  Initializer gamma_initializer = "ones";
  Regularizer beta_regularizer = {};
  Regularizer gamma_regularizer = {};
  Constraint beta_constraint = {};
  Constraint gamma_constraint = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("groups", c.groups);
    f("axis", c.axis);
    f("epsilon", c.epsilon);
    f("center", c.center);
    f("scale", c.scale);
    f("beta_initializer", c.beta_initializer);
    f("gamma_initializer", c.gamma_initializer);
    f("beta_regularizer", c.beta_regularizer);
    f("gamma_regularizer", c.gamma_regularizer);
    f("beta_constraint", c.beta_constraint);
    f("gamma_constraint", c.gamma_constraint);
  }
};

class GroupNormalizationLayer : public LayerImpl<GroupNormalizationOptions> {
 public:
  explicit GroupNormalizationLayer(GroupNormalizationOptions options);
  void build(const Shape& input_shape) override;
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  int64_t axis_ = 0, groups_ = 1;
  Variable gamma_, beta_;
};

/// As LayerNormalization, over groups of channels that lie side by side.
/// Errors: InvalidArgument for groups that do not divide the channels.
using GroupNormalization = Handle<GroupNormalizationLayer>;

struct RMSNormalizationOptions {
  AxisList axis = -1;
  double epsilon = 1e-6;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("axis", c.axis);
    f("epsilon", c.epsilon);
  }
};

class RMSNormalizationLayer : public LayerImpl<RMSNormalizationOptions> {
 public:
  using LayerImpl::LayerImpl;
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs&) override;

 private:
  std::vector<int64_t> axes_;
  Variable scale_;
};

/// x / sqrt(mean(x^2) + epsilon) * scale.
using RMSNormalization = Handle<RMSNormalizationLayer>;

struct UnitNormalizationOptions {
  AxisList axis = -1;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) { f("axis", c.axis); }
};

class UnitNormalizationLayer : public LayerImpl<UnitNormalizationOptions> {
 public:
  using LayerImpl::LayerImpl;
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override;
};

/// x / |x|; what has no length stays 0.
using UnitNormalization = Handle<UnitNormalizationLayer>;

}  // namespace cohort::keras
