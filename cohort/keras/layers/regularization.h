// SPDX-License-Identifier: Apache-2.0
//
// Noise and penalties while training, with the names, options and defaults of Keras 3. Dropout is
// in core.h. What is drawn depends on the seed, the layer's number, how often the replica called
// it, and the replica.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cohort/keras/layer.h"

namespace cohort::keras {

namespace internal {
class Draws;
}

/// What layers have in common that draw while training.
template <class C>
class DrawingLayer : public LayerImpl<C> {
 public:
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  ~DrawingLayer() override;

 protected:
  explicit DrawingLayer(C config);
  TrackedParts tracked_parts() const override;
  internal::Draws& draws() { return *draws_; }

 private:
  std::unique_ptr<internal::Draws> draws_;
};

struct GaussianNoiseOptions {
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct GaussianNoiseConfig : GaussianNoiseOptions {
  double stddev = 0;
  static void fields(auto& c, auto&& f) {
    f.required("stddev", c.stddev);
    f("seed", c.seed);
  }
};

class GaussianNoiseLayer : public DrawingLayer<GaussianNoiseConfig> {
 public:
  explicit GaussianNoiseLayer(GaussianNoiseConfig config);
  Tensor call(const Tensor& x, const CallArgs& args) override;
};

/// Adds normal numbers. Errors: InvalidArgument unless 0 <= stddev <= 1.
class GaussianNoise : public Layer {
 public:
  explicit GaussianNoise(double stddev, GaussianNoiseOptions options = {});
};

struct GaussianDropoutOptions {
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct GaussianDropoutConfig : GaussianDropoutOptions {
  double rate = 0;
  static void fields(auto& c, auto&& f) {
    f.required("rate", c.rate);
    f("seed", c.seed);
  }
};

class GaussianDropoutLayer : public DrawingLayer<GaussianDropoutConfig> {
 public:
  explicit GaussianDropoutLayer(GaussianDropoutConfig config);
  Tensor call(const Tensor& x, const CallArgs& args) override;
};

/// Multiplies by normal numbers of mean 1 and variance rate / (1 - rate).
/// Errors: InvalidArgument unless 0 <= rate < 1.
class GaussianDropout : public Layer {
 public:
  explicit GaussianDropout(double rate, GaussianDropoutOptions options = {});
};

struct AlphaDropoutOptions {
  std::optional<Shape> noise_shape = {};
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct AlphaDropoutConfig : AlphaDropoutOptions {
  double rate = 0;
  static void fields(auto& c, auto&& f) {
    f.required("rate", c.rate);
    f("seed", c.seed);
    f.shape("noise_shape", c.noise_shape);
  }
};

class AlphaDropoutLayer : public DrawingLayer<AlphaDropoutConfig> {
 public:
  explicit AlphaDropoutLayer(AlphaDropoutConfig config);
  Tensor call(const Tensor& x, const CallArgs& args) override;
};

/// Dropout that keeps mean and variance of what SELU gives. Errors: InvalidArgument unless
/// 0 <= rate < 1.
class AlphaDropout : public Layer {
 public:
  explicit AlphaDropout(double rate, AlphaDropoutOptions options = {});
};

template <int N>
struct SpatialDropoutOptions {
  std::string data_format = "channels_last";
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};
/// Of series, whose channels are last.
template <>
struct SpatialDropoutOptions<1> {
  std::optional<uint64_t> seed = {};
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

template <int N>
struct SpatialDropoutConfig : SpatialDropoutOptions<N> {
  double rate = 0;
  static void fields(auto& c, auto&& f) {
    f.required("rate", c.rate);
    f("seed", c.seed);
    if constexpr (N > 1) f("data_format", c.data_format);
  }
};

template <int N>
class SpatialDropoutLayer : public DrawingLayer<SpatialDropoutConfig<N>> {
 public:
  explicit SpatialDropoutLayer(SpatialDropoutConfig<N> config);
  Tensor call(const Tensor& x, const CallArgs& args) override;
  /// Keras's class has no argument `trainable`, would refuse a file that names it, and has the
  /// dtype by its name.
  Config get_config() const override;

 private:
  bool channels_first_ = false;
};

struct SpatialDropout1DLayer : SpatialDropoutLayer<1> {
  using SpatialDropoutLayer<1>::SpatialDropoutLayer;
};
struct SpatialDropout2DLayer : SpatialDropoutLayer<2> {
  using SpatialDropoutLayer<2>::SpatialDropoutLayer;
};
struct SpatialDropout3DLayer : SpatialDropoutLayer<3> {
  using SpatialDropoutLayer<3>::SpatialDropoutLayer;
};

namespace internal {
template <class L, int N>
class SpatialDropoutHandle : public Layer {
 public:
  explicit SpatialDropoutHandle(double rate, SpatialDropoutOptions<N> options = {})
      : Layer(std::make_shared<L>(SpatialDropoutConfig<N>{std::move(options), rate})) {}
};
}  // namespace internal

/// SpatialDropout2D(rate, options): Dropout of whole channels. Shapes: [b, h, w, c].
using SpatialDropout1D = internal::SpatialDropoutHandle<SpatialDropout1DLayer, 1>;
using SpatialDropout2D = internal::SpatialDropoutHandle<SpatialDropout2DLayer, 2>;
using SpatialDropout3D = internal::SpatialDropoutHandle<SpatialDropout3DLayer, 3>;

struct ActivityRegularizationOptions {
  double l1 = 0;
  double l2 = 0;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("l1", c.l1);
    f("l2", c.l2);
  }
};

class ActivityRegularizationLayer : public LayerImpl<ActivityRegularizationOptions> {
 public:
  explicit ActivityRegularizationLayer(ActivityRegularizationOptions options);
  bool may_have_weights() const override { return false; }
  bool supports_masking() const override { return true; }
  Tensor call(const Tensor& x, const CallArgs&) override { return x; }
};

/// The input as it is; adds to the loss l1 * sum|x| + l2 * sum x^2.
using ActivityRegularization = Handle<ActivityRegularizationLayer>;

}  // namespace cohort::keras
