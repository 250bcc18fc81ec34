// SPDX-License-Identifier: Apache-2.0
//
// Preprocessing of numbers and categories, with the names, options and defaults of Keras 3.
//
//   keras::Normalization normalize;             // (x - mean) / deviation, of each feature
//   normalize.adapt(features);
//   keras::Sequential model({normalize, keras::Dense(1)});
//
// They stand in a model, are called by themselves, normalize(x), or in an input pipeline:
// train.map([normalize](const Element& x) { return normalize(x); }).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/keras/internal/device_constant.h"
#include "cohort/keras/layer.h"
#include "cohort/keras/layers/adapting.h"
#include "cohort/keras/layers/layer_normalization.h"

namespace cohort::keras {

/// One number, one for each feature, or none: 2.0, {1.5, 2.5}.
struct FeatureNumbers {
  std::vector<double> each = {};  ///< Empty: none.
  bool is_list = false;           ///< How the config has it.

  FeatureNumbers() = default;
  FeatureNumbers(double all) : each{all} {}                  // NOLINT: implicit
  FeatureNumbers(std::initializer_list<double> of_features)  // NOLINT
      : each(of_features), is_list(true) {}                  // NOLINT
  FeatureNumbers(std::vector<double> of_features)            // NOLINT
      : each(std::move(of_features)), is_list(true) {}       // NOLINT
  bool operator==(const FeatureNumbers&) const = default;
  Config serialize() const;
  static FeatureNumbers deserialize(const Config& config);
};

struct NormalizationOptions {
  AxisList axis = -1;        ///< Which keep a mean of their own; {}: one mean for all.
  FeatureNumbers mean = {};  ///< Given instead of learnt; then so is the variance.
  FeatureNumbers variance = {};
  bool invert = false;  ///< x * deviation + mean instead.
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("axis", c.axis);
    f("invert", c.invert);
    f("mean", c.mean);
    f("variance", c.variance);
  }
};

class NormalizationLayer : public LayerImpl<NormalizationOptions, AdaptingLayer> {
 public:
  explicit NormalizationLayer(NormalizationOptions options);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& x, const CallArgs&) override;
  bool supports_masking() const override { return true; }

 protected:
  void begin_learning() override;
  void learn(const Element& batch) override;
  void finish_learning() override;
  Element as_batches(const Element& dataset) const override;

 private:
  void build_given();
  /// In float64, [the kept axes' sizes as one] of x.
  Tensor features_last(const Tensor& x) const;

  std::vector<int64_t> kept_;  // axes, sorted
  Shape built_for_;
  Shape broadcast_;  // of mean and deviation against the input
  Variable mean_, variance_, count_;
  Tensor given_mean_, given_variance_;
  internal::DeviceConstant given_mean_there_, given_variance_there_;
  double rows_ = 0;  // what was learnt so far
  Tensor learnt_mean_, learnt_squares_;
};

/// (x - mean) / sqrt(variance), by the mean and variance of each feature that adapt() saw.
/// Weights: mean and variance [the kept axes], and Keras's count; none where mean and variance are
/// given. Errors: InvalidArgument for a mean without a variance, kept axes of unknown size.
/// TF: keras.layers.Normalization.
class Normalization : public AdaptingHandle {
 public:
  explicit Normalization(NormalizationOptions options = {});
};

struct CategoryEncodingOptions {
  std::string output_mode = "multi_hot";  ///< Or "one_hot", "count".
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct CategoryEncodingConfig : CategoryEncodingOptions {
  int64_t num_tokens = 0;
  static void fields(auto& c, auto&& f) {
    f.required("num_tokens", c.num_tokens);
    f("output_mode", c.output_mode);
  }
};

class CategoryEncodingLayer : public LayerImpl<CategoryEncodingConfig> {
 public:
  explicit CategoryEncodingLayer(CategoryEncodingConfig config);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& input_shape) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;
  Element call_nest(const Element& inputs, const CallArgs&) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
};

/// Numbers of categories as vectors: a 1 for each (multi_hot: one vector for all of a sample), or
/// how often it comes (count): of {x, weights} each as often as its weight says.
/// Shapes: "multi_hot" and "count": [b, n] to [b, num_tokens]; [n] is one sample. "one_hot": [b, 1]
/// and [b] to [b, num_tokens], [b, n] to [b, n, num_tokens]. Numbers of num_tokens and above leave
/// zeros. Errors: InvalidArgument for numbers below 0. TF: keras.layers.CategoryEncoding.
class CategoryEncoding : public Layer {
 public:
  explicit CategoryEncoding(int64_t num_tokens, CategoryEncodingOptions options = {});
};

struct DiscretizationOptions {
  std::optional<std::vector<double>> bin_boundaries =
      {};                                ///< Ascending; unset: adapt() finds them.
  std::optional<int64_t> num_bins = {};  ///< For adapt().
  double epsilon = 0.01;            ///< How far quantiles may be off; smaller takes more memory.
  std::string output_mode = "int";  ///< Or "one_hot", "multi_hot", "count".
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("bin_boundaries", c.bin_boundaries);
    f("num_bins", c.num_bins);
    f("epsilon", c.epsilon);
    f("output_mode", c.output_mode);
    f.constant("sparse", false);
  }
};

class DiscretizationLayer : public LayerImpl<DiscretizationOptions, AdaptingLayer> {
 public:
  explicit DiscretizationLayer(DiscretizationOptions options);
  bool may_have_weights() const override { return false; }
  Shape compute_output_shape(const Shape& input_shape) const override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;
  Tensor call(const Tensor& x, const CallArgs&) override;
  Config get_config() const override;
  /// Empty: adapt() has not found them yet.
  std::vector<double> bin_boundaries() const;

 protected:
  void begin_learning() override;
  void learn(const Element& batch) override;
  void finish_learning() override;
  TrackedParts tracked_parts() const override;

 private:
  int64_t bins() const;
  DType output_dtype() const;
  void set_boundaries(const std::vector<float>& boundaries);

  /// Values and how many of the data each stands for, ascending.
  struct Summary {
    std::vector<float> values, weights;
  };
  static Summary summary_of(std::vector<float> values, double epsilon);
  static Summary compressed(const Summary& summary, double epsilon);

  std::string mode_;
  // float32; an undefined one: none yet. Shared with what checkpoints see.
  std::shared_ptr<Tensor> boundaries_ = std::make_shared<Tensor>();
  Summary summary_;
};

/// The number of the bin that a value is in: how many boundaries are not above it; or that number
/// as CategoryEncoding has it. adapt() takes quantiles as boundaries, by Keras's own summary.
/// They are part of the config. Shapes: as CategoryEncoding; "int" as the input, int32.
/// Errors: InvalidArgument unless one of bin_boundaries and num_bins is given; FailedPrecondition
///         for a call before adapt(). TF: keras.layers.Discretization.
class Discretization : public AdaptingHandle {
 public:
  explicit Discretization(DiscretizationOptions options);
  std::vector<double> bin_boundaries() const;
};

}  // namespace cohort::keras
