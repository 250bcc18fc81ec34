// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/regularization.h"

#include <cmath>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/windows.h"

namespace cohort::keras {
namespace {

void check_share(const char* who, const char* what, double value, bool one_too) {
  COHORT_CHECK_ARG(value >= 0 && (value < 1 || (one_too && value == 1)), "[", who,
                   "] expected 0 <= ", what, one_too ? " <= 1" : " < 1", ", got ", value);
}

}  // namespace

template <class C>
DrawingLayer<C>::DrawingLayer(C config)
    : LayerImpl<C>(std::move(config)),
      draws_(std::make_unique<internal::Draws>(this->config().seed)) {}

template <class C>
DrawingLayer<C>::~DrawingLayer() = default;

template <class C>
TrackedParts DrawingLayer<C>::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  draws_->add_to(parts);
  return parts;
}

GaussianNoiseLayer::GaussianNoiseLayer(GaussianNoiseConfig config)
    : DrawingLayer(std::move(config)) {
  check_share("gaussian_noise", "stddev", this->config().stddev, true);
}

Tensor GaussianNoiseLayer::call(const Tensor& x, const CallArgs& args) {
  if (!args.training || config().stddev == 0) return x;
  return x + draws().normal(0, config().stddev, x);
}

GaussianNoise::GaussianNoise(double stddev, GaussianNoiseOptions options)
    : Layer(std::make_shared<GaussianNoiseLayer>(GaussianNoiseConfig{std::move(options), stddev})) {
}

GaussianDropoutLayer::GaussianDropoutLayer(GaussianDropoutConfig config)
    : DrawingLayer(std::move(config)) {
  check_share("gaussian_dropout", "rate", this->config().rate, false);
}

Tensor GaussianDropoutLayer::call(const Tensor& x, const CallArgs& args) {
  const double rate = config().rate;
  if (!args.training || rate == 0) return x;
  return x * draws().normal(1, std::sqrt(rate / (1 - rate)), x);
}

GaussianDropout::GaussianDropout(double rate, GaussianDropoutOptions options)
    : Layer(
          std::make_shared<GaussianDropoutLayer>(GaussianDropoutConfig{std::move(options), rate})) {
}

AlphaDropoutLayer::AlphaDropoutLayer(AlphaDropoutConfig config) : DrawingLayer(std::move(config)) {
  check_share("alpha_dropout", "rate", this->config().rate, false);
}

// What is dropped becomes what SELU gives of minus infinity; a and b mend mean and variance.
Tensor AlphaDropoutLayer::call(const Tensor& x, const CallArgs& args) {
  const double rate = config().rate;
  if (!args.training || rate == 0) return x;
  constexpr double kDropped = -1.6732632423543772848 * 1.0507009873554804935;
  const Shape shape = internal::mask_shape(name(), config().noise_shape, x);
  const Tensor kept = draws().keep_mask(shape, rate, x).gt(0).to(x.scalar_type());
  const double a = 1 / std::sqrt((1 - rate) * (1 + rate * kDropped * kDropped));
  const double b = -a * kDropped * rate;
  return (x * kept + kDropped * (1 - kept)) * a + b;
}

AlphaDropout::AlphaDropout(double rate, AlphaDropoutOptions options)
    : Layer(std::make_shared<AlphaDropoutLayer>(AlphaDropoutConfig{std::move(options), rate})) {}

template <int N>
SpatialDropoutLayer<N>::SpatialDropoutLayer(SpatialDropoutConfig<N> config)
    : DrawingLayer<SpatialDropoutConfig<N>>(std::move(config)) {
  check_share("spatial_dropout", "rate", this->config().rate, true);
  if constexpr (N > 1) {
    channels_first_ = internal::is_channels_first("spatial_dropout", this->config().data_format);
  }
}

template <int N>
Tensor SpatialDropoutLayer<N>::call(const Tensor& x, const CallArgs& args) {
  const internal::DataLayout layout(this->name(), shape_of(x), N, channels_first_);
  if (!args.training || this->config().rate == 0) return x;
  Shape shape = shape_of(x);
  for (std::size_t i = 0; i < N; ++i) shape[layout.first + i] = 1;
  return x * this->draws().keep_mask(shape, this->config().rate, x);
}

template <int N>
Config SpatialDropoutLayer<N>::get_config() const {
  Config out = Config::object();
  const Config all = LayerImpl<SpatialDropoutConfig<N>>::get_config();
  for (const auto& [key, value] : all.members()) {
    if (key != "trainable") out.set(key, key == "dtype" ? this->config().dtype.name() : value);
  }
  return out;
}

ActivityRegularizationLayer::ActivityRegularizationLayer(ActivityRegularizationOptions options)
    : LayerImpl(std::move(options)) {
  set_activity_regularizer(L1L2(config().l1, config().l2));
}

template class DrawingLayer<GaussianNoiseConfig>;
template class DrawingLayer<GaussianDropoutConfig>;
template class DrawingLayer<AlphaDropoutConfig>;
template class DrawingLayer<SpatialDropoutConfig<1>>;
template class DrawingLayer<SpatialDropoutConfig<2>>;
template class DrawingLayer<SpatialDropoutConfig<3>>;
template class SpatialDropoutLayer<1>;
template class SpatialDropoutLayer<2>;
template class SpatialDropoutLayer<3>;

}  // namespace cohort::keras
