// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/image_geometry.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numbers>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/image_colors.h"
#include "cohort/keras/layers/internal/image_sampling.h"

namespace cohort::keras {
namespace {

using internal::sampling_of;

template <class C>
internal::Sampling sampling_in(const std::string& who, const C& options) {
  return sampling_of(who, options.interpolation, options.fill_mode, options.fill_value);
}

// A row of a0, a1, a2, b0, b1, b2, c0, c1 for each image, of columns [b, 1].
Tensor transforms(const std::vector<Tensor>& six) {
  std::vector<Tensor> columns = six;
  columns.resize(8, at::zeros_like(six[0]));
  return at::cat(columns, 1);
}

Tensor column_of(const Tensor& each) { return each.reshape({-1, 1}).to(kFloat32); }

template <class C>
C with_factor(C config, const char* who, double least, double most) {
  config.factor = config.factor.within(who, least, most);
  return config;
}

// Of one number Keras writes two into its files, and does not read the negative one again.
FactorRange shear_range(const FactorRange& told) {
  FactorRange range = told.within("random_shear", -1, 1);
  range.is_one = range.low < 0 && range.low == -range.high;
  return range;
}

RandomShearOptions with_shear(RandomShearOptions config) {
  config.x_factor = shear_range(config.x_factor);
  config.y_factor = shear_range(config.y_factor);
  return config;
}

RandomElasticTransformOptions elastic(RandomElasticTransformOptions options) {
  options = with_factor(std::move(options), "random_elastic_transform", 0, 1);
  options.scale = options.scale.within("random_elastic_transform", 0, 1);
  return options;
}

}  // namespace

RandomFlipLayer::RandomFlipLayer(RandomFlipOptions options) : LayerImpl(std::move(options)) {
  const std::string& mode = config().mode;
  COHORT_CHECK_ARG(
      mode == "horizontal" || mode == "vertical" || mode == "horizontal_and_vertical",
      "[random_flip] expected mode horizontal, vertical or horizontal_and_vertical, got ", mode);
  set_up(config().data_format, config().seed);
}

Tensor RandomFlipLayer::transform(const Tensor& images) {
  std::vector<int64_t> axes;
  if (config().mode != "vertical") axes.push_back(2);
  if (config().mode != "horizontal") axes.push_back(1);
  return at::where(one_each(images, {0, 1}).le(0.5), images.flip(axes), images);
}

RandomRotationLayer::RandomRotationLayer(RandomRotationConfig config)
    : LayerImpl(with_factor(std::move(config), "random_rotation", -1, 1)) {
  sampling_in("random_rotation", this->config());
  set_up(this->config().data_format, this->config().seed);
}

Tensor RandomRotationLayer::transform(const Tensor& images) {
  const FactorRange& factor = config().factor;
  // As Keras: an angle in degrees.
  const Tensor angle =
      column_of(one_each(images, {factor.low * 360, factor.high * 360})) * (std::numbers::pi / 180);
  const double x = static_cast<double>(images.size(2) - 1) / 2;
  const double y = static_cast<double>(images.size(1) - 1) / 2;
  const Tensor cos = angle.cos(), sin = angle.sin();
  const Tensor rows =
      transforms({cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos});
  return internal::projected(images, rows, sampling_in(name(), config()));
}

RandomTranslationLayer::RandomTranslationLayer(RandomTranslationConfig config)
    : LayerImpl(std::move(config)),
      height_(this->config().height_factor.within("random_translation", -1, 1)),
      width_(this->config().width_factor.within("random_translation", -1, 1)) {
  sampling_in("random_translation", this->config());
  set_up(this->config().data_format, this->config().seed);
}

Tensor RandomTranslationLayer::transform(const Tensor& images) {
  const Tensor down = column_of(one_each(images, height_)) * images.size(1);
  const Tensor right = column_of(one_each(images, width_)) * images.size(2);
  const Tensor one = at::ones_like(down), none = at::zeros_like(down);
  return internal::projected(images, transforms({one, none, -right, none, one, -down}),
                             sampling_in(name(), config()));
}

RandomTranslation::RandomTranslation(FactorRange height_factor, FactorRange width_factor,
                                     GeometryOptions options)
    : Layer(std::make_shared<RandomTranslationLayer>(
          RandomTranslationConfig{std::move(options), height_factor, width_factor})) {}

RandomZoomLayer::RandomZoomLayer(RandomZoomConfig config) : LayerImpl(std::move(config)) {
  const RandomZoomConfig& o = this->config();
  const auto checked = [](const FactorRange& factor) {
    const FactorRange range = factor.within("random_zoom", -1, 1);
    // One number may be 1 all the same: half of what it draws is out of Keras's range, too.
    const double least = factor.is_one ? factor.high : range.low;
    COHORT_CHECK_ARG(least > -1, "[random_zoom] expected factors above -1, got ", least);
    return range;
  };
  height_ = checked(o.height_factor);
  if (o.width_factor) width_ = checked(*o.width_factor);
  sampling_in("random_zoom", o);
  set_up(o.data_format, o.seed);
}

Tensor RandomZoomLayer::transform(const Tensor& images) {
  const Tensor rows = column_of(one_each(images, {1 + height_.low, 1 + height_.high}));
  const Tensor columns =
      width_ ? column_of(one_each(images, {1 + width_->low, 1 + width_->high})) : rows;
  const Tensor x = (1 - columns) * (static_cast<double>(images.size(2) - 1) / 2);
  const Tensor y = (1 - rows) * (static_cast<double>(images.size(1) - 1) / 2);
  const Tensor none = at::zeros_like(rows);
  return internal::projected(images, transforms({columns, none, x, none, rows, y}),
                             sampling_in(name(), config()));
}

RandomShearLayer::RandomShearLayer(RandomShearOptions options)
    : LayerImpl(with_shear(std::move(options))) {
  sampling_in("random_shear", this->config());
  set_up(this->config().data_format, this->config().seed);
}

Tensor RandomShearLayer::transform(const Tensor& images) {
  const Tensor side = column_of(one_each(images, {0, 1})).gt(0.5).to(kFloat32) * -2 + 1;
  const Tensor y = column_of(one_each(images, config().y_factor)) * side;
  const Tensor x = column_of(one_each(images, config().x_factor)) * side;
  const Tensor one = at::ones_like(side), none = at::zeros_like(side);
  return internal::projected(images, transforms({one, x, none, y, one, none}),
                             sampling_in(name(), config()));
}

RandomPerspectiveLayer::RandomPerspectiveLayer(RandomPerspectiveOptions options)
    : LayerImpl(with_factor(std::move(options), "random_perspective", 0, 1)) {
  const double scale = config().scale;
  COHORT_CHECK_ARG(scale >= 0 && scale <= 1, "[random_perspective] expected 0 <= scale <= 1, got ",
                   scale);
  sampling_of("random_perspective", config().interpolation, "constant", 0);
  set_up(config().data_format, config().seed);
}

Tensor RandomPerspectiveLayer::transform(const Tensor& images) {
  const double half = config().scale / 2;
  const double right = static_cast<double>(images.size(2) - 1);
  const double bottom = static_cast<double>(images.size(1) - 1);
  const Tensor change = chosen(images, config().factor);
  const Tensor moves = draws().uniform(-half, half, {images.size(0), 4, 2});
  const Tensor corners =
      from_vector<double>({0, 0, right, 0, 0, bottom, right, bottom}, {1, 4, 2}).to(kFloat32);
  const Tensor from = corners.expand({images.size(0), 4, 2});
  const internal::Sampling how =
      sampling_of(name(), config().interpolation, "constant", config().fill_value);
  const Tensor bent =
      internal::projected(images, internal::homography(from, from + from * moves), how);
  return at::where(change, bent, images);
}

RandomElasticTransformLayer::RandomElasticTransformLayer(RandomElasticTransformOptions options)
    : LayerImpl(elastic(std::move(options))) {
  sampling_in("random_elastic_transform", config());
  set_up(config().data_format, config().seed);
}

Tensor RandomElasticTransformLayer::transform(const Tensor& images) {
  const RandomElasticTransformOptions& o = config();
  if (o.scale.high == 0 || o.factor.high == 0) return images;
  const Tensor change = chosen(images, o.factor);
  const double scale = draws().uniform(o.scale.low, o.scale.high, {1}).item<double>();
  const int64_t h = images.size(1), w = images.size(2);
  const double alpha = static_cast<double>(std::max(h, w)) * 0.1 * scale;
  const double sigma = static_cast<double>(std::min(h, w)) * 0.05 * scale;
  if (sigma <= 0) return images;
  const int64_t size = 6 * static_cast<int64_t>(sigma) | 1;
  const Tensor places = zeros({images.size(0), h, w, 1});
  const Tensor kernel = internal::gaussian_kernel(size, size, sigma, sigma, places);
  const auto noise = [&] {
    const Tensor steps = draws().normal(0, sigma, places);
    return internal::blurred(steps, kernel).squeeze(-1) * alpha;
  };
  const Tensor x = noise() + at::arange(w, places.options()).view({1, 1, w});
  const Tensor y = noise() + at::arange(h, places.options()).view({1, h, 1});
  const Tensor bent = internal::sample(images, x, y, sampling_in(name(), o));
  return at::where(change, bent, images).clamp(o.value_range.low, o.value_range.high);
}

}  // namespace cohort::keras
