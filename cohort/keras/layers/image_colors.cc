// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/image_colors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/image_colors.h"

namespace cohort::keras {
namespace {

using internal::rescaled;

constexpr double kLevels = 255;

FactorRange value_range_of(const std::string& who, FactorRange range) {
  COHORT_CHECK_ARG(!range.is_one && range.low != range.high, "[", who,
                   "] expected a value_range of two numbers, got ", range.low, " and ", range.high);
  if (range.low > range.high) std::swap(range.low, range.high);
  return range;
}

ColorConfig checked(ColorConfig config, const char* who, double least, double most) {
  config.factor = config.factor.within(who, least, most);
  config.value_range = value_range_of(who, config.value_range);
  return config;
}

template <class C>
C with_ranges(C options, const char* who) {
  options.value_range = value_range_of(who, options.value_range);
  if constexpr (requires { options.factor.within(who, 0, 1); }) {
    options.factor = options.factor.within(who, 0, 1);
  }
  return options;
}

SolarizationOptions solarizing(SolarizationOptions options) {
  options = with_ranges(std::move(options), "solarization");
  options.addition_factor = options.addition_factor.within("solarization", 0, 1);
  options.threshold_factor = options.threshold_factor.within("solarization", 0, 1);
  return options;
}

RandomGaussianBlurOptions blurring(RandomGaussianBlurOptions options) {
  options = with_ranges(std::move(options), "random_gaussian_blur");
  options.sigma = options.sigma.within("random_gaussian_blur", 0, 1);
  return options;
}

RandomErasingOptions erasing(RandomErasingOptions options) {
  options = with_ranges(std::move(options), "random_erasing");
  options.scale = options.scale.within("random_erasing", 0, 1);
  return options;
}

// As [b, h, w] is multiplied by.
Tensor for_planes(const Tensor& each) { return each.squeeze(-1); }

Tensor with_channels(const Tensor& hue, const Tensor& saturation, const Tensor& value) {
  return internal::hsv_to_rgb(at::stack({hue, saturation, value}, -1));
}

}  // namespace

ColorLayer::ColorLayer(ColorConfig config, const char* who, double least, double most)
    : LayerImpl(checked(std::move(config), who, least, most)) {
  set_up(this->config().data_format, this->config().seed);
}

Tensor ColorLayer::clamped(const Tensor& images) const {
  return images.clamp(config().value_range.low, config().value_range.high);
}

Tensor RandomBrightnessLayer::transform(const Tensor& images) {
  const FactorRange& range = config().value_range;
  return clamped(images + one_each(images, config().factor) * (range.high - range.low));
}

Tensor RandomContrastLayer::transform(const Tensor& images) {
  const Tensor mean = images.mean({1, 2}, true);
  const FactorRange& factor = config().factor;
  return clamped((images - mean) * one_each(images, {1 - factor.low, 1 + factor.high}) + mean);
}

Tensor RandomHueLayer::transform(const Tensor& images) {
  const FactorRange& range = config().value_range;
  const Tensor side = one_each(images, {0, 1}).gt(0.5).to(images.scalar_type()) * -2 + 1;
  const Tensor turn = one_each(images, config().factor) * side * 0.5;
  const Tensor hsv = internal::rgb_to_hsv(rescaled(images, range.low, range.high, 0, 1), name());
  Tensor hue = hsv.select(-1, 0) + for_planes(turn);
  hue = at::where(hue > 1, hue - 1, hue);
  hue = at::where(hue < 0, hue + 1, hue);
  const Tensor rgb = with_channels(hue, hsv.select(-1, 1), hsv.select(-1, 2)).clamp(0, 1);
  return rescaled(rgb, 0, 1, range.low, range.high);
}

Tensor RandomSaturationLayer::transform(const Tensor& images) {
  constexpr double kLeast = 1e-7;
  const Tensor factor = one_each(images, config().factor);
  const Tensor hsv = internal::rgb_to_hsv(images, name());
  const Tensor saturation = clamped(hsv.select(-1, 1) * for_planes(factor / (1 - factor + kLeast)));
  return with_channels(hsv.select(-1, 0), saturation, hsv.select(-1, 2));
}

Tensor RandomColorDegenerationLayer::transform(const Tensor& images) {
  const Tensor gray = internal::to_grayscale(images, name());
  return clamped(images + one_each(images, config().factor) * (gray - images));
}

Tensor RandomPosterizationLayer::transform(const Tensor& images) {
  const FactorRange& range = config().value_range;
  Tensor bits = one_each(images, config().factor).floor();
  // Rounding must not reach what is left out.
  if (config().factor.low != config().factor.high) {
    bits = bits.clamp_max(config().factor.high - 1);
  }
  const Tensor levels = rescaled(images, range.low, range.high, 0, kLevels).trunc();
  const Tensor step = (8 - bits).exp2();
  return rescaled((levels / step).floor() * step, 0, kLevels, range.low, range.high);
}

Tensor RandomSharpnessLayer::transform(const Tensor& images) {
  constexpr double kAround = 1.0 / 13, kMiddle = 5.0 / 13;
  const Tensor kernel = full({3, 3}, kAround);
  kernel.select(0, 1).select(0, 1).fill_(kMiddle);
  const Tensor smooth = internal::blurred(images, kernel);
  return clamped(images + (1 - one_each(images, config().factor) * 2) * (smooth - images));
}

Tensor RandomInvertLayer::transform(const Tensor& images) {
  return at::where(chosen(images, config().factor), config().value_range.high - images, images);
}

RandomGrayscaleLayer::RandomGrayscaleLayer(RandomGrayscaleOptions options)
    : LayerImpl(std::move(options)) {
  COHORT_CHECK_ARG(config().factor >= 0 && config().factor <= 1,
                   "[random_grayscale] expected 0 <= factor <= 1, got ", config().factor);
  set_up(config().data_format, config().seed);
}

Tensor RandomGrayscaleLayer::transform(const Tensor& images) {
  const Tensor change = one_each(images, {0, 1}) < config().factor;
  return at::where(change, internal::to_grayscale(images, name()), images);
}

RandomColorJitterLayer::RandomColorJitterLayer(RandomColorJitterOptions options)
    : LayerImpl(std::move(options)) {
  const RandomColorJitterOptions& o = config();
  set_up(o.data_format, o.seed);
  ColorOptions each{.value_range = o.value_range, .seed = o.seed, .dtype = o.dtype};
  const auto put = [&](const char* place, Layer layer) {
    layer.base().set_name(place);
    track(std::move(layer), place);
    if (each.seed) ++*each.seed;  // or all would draw the same
  };
  if (o.brightness_factor) put("random_brightness", RandomBrightness(*o.brightness_factor, each));
  if (o.contrast_factor) put("random_contrast", RandomContrast(*o.contrast_factor, each));
  if (o.saturation_factor) put("random_saturation", RandomSaturation(*o.saturation_factor, each));
  if (o.hue_factor) put("random_hue", RandomHue(*o.hue_factor, each));
}

Tensor RandomColorJitterLayer::transform(const Tensor& images) {
  Tensor x = images;
  for (const Layer& layer : sub_layers()) x = layer(x, {.training = true});
  return x;
}

SolarizationLayer::SolarizationLayer(SolarizationOptions options)
    : LayerImpl(solarizing(std::move(options))) {
  set_up(config().data_format, config().seed);
}

// As Keras: the lower end of a factor is in levels, the upper one a part of 255 of them.
Tensor SolarizationLayer::transform(const Tensor& images) {
  const auto drawn = [&](const FactorRange& factor) {
    return one_each(images, {factor.low, factor.high * kLevels});
  };
  const FactorRange& range = config().value_range;
  const Tensor addition = drawn(config().addition_factor);
  const Tensor threshold = drawn(config().threshold_factor);
  const Tensor levels =
      (rescaled(images, range.low, range.high, 0, kLevels) + addition).clamp(0, kLevels);
  return rescaled(at::where(levels < threshold, levels, kLevels - levels), 0, kLevels, range.low,
                  range.high);
}

AutoContrastLayer::AutoContrastLayer(AutoContrastOptions options)
    : LayerImpl(with_ranges(std::move(options), "auto_contrast")) {
  set_up(config().data_format);
}

Tensor AutoContrastLayer::transform(const Tensor& images) {
  const FactorRange& range = config().value_range;
  const Tensor levels = rescaled(images, range.low, range.high, 0, kLevels);
  const Tensor low = levels.amin({1, 2}, true), high = levels.amax({1, 2}, true);
  const Tensor flat = high.eq(low);
  const Tensor scale = kLevels / (high - low).masked_fill(flat, 1);
  const Tensor stretched = (levels * scale - low * scale).clamp(0, kLevels);
  return at::where(flat, images, rescaled(stretched, 0, kLevels, range.low, range.high));
}

EqualizationLayer::EqualizationLayer(EqualizationOptions options)
    : LayerImpl(with_ranges(std::move(options), "equalization")) {
  COHORT_CHECK_ARG(config().bins > 1, "[equalization] expected bins > 1, got ", config().bins);
  set_up(config().data_format);
}

Tensor EqualizationLayer::transform(const Tensor& images) {
  if (images.numel() == 0) return images;
  const FactorRange& range = config().value_range;
  const int64_t bins = config().bins;
  const Tensor levels = rescaled(images, range.low, range.high, 0, kLevels);
  const auto last = static_cast<double>(bins - 1);
  const Tensor places = (levels * last / kLevels).trunc().clamp(0, last).to(kInt64);
  std::vector<Tensor> channels;
  for (int64_t c = 0; c < images.size(-1); ++c) {
    const Tensor place = places.select(-1, c);
    const Tensor counts = at::bincount(place.flatten(), {}, bins);
    if (counts.ne(0).sum().item<int64_t>() <= 1) {
      channels.push_back(levels.select(-1, c));
      continue;
    }
    const Tensor sums = counts.cumsum(0);
    const Tensor first = sums.masked_select(sums.ne(0))[0];
    const Tensor table = ((sums - first) * 255).to(kFloat32) / (sums[-1] - first).to(kFloat32);
    channels.push_back(table.round().clamp(0, kLevels).take(place).to(images.scalar_type()));
  }
  return rescaled(at::stack(channels, -1), 0, kLevels, range.low, range.high);
}

RandomGaussianBlurLayer::RandomGaussianBlurLayer(RandomGaussianBlurOptions options)
    : LayerImpl(blurring(std::move(options))) {
  const std::vector<int64_t>& size = config().kernel_size;
  COHORT_CHECK_ARG(size.size() == 2 && size[0] > 0 && size[1] > 0,
                   "[random_gaussian_blur] expected kernel_size of two numbers > 0, got ",
                   bracketed(size));
  set_up(config().data_format, config().seed);
}

Tensor RandomGaussianBlurLayer::transform(const Tensor& images) {
  constexpr double kLeast = 1e-6;
  const RandomGaussianBlurOptions& o = config();
  const Tensor change = chosen(images, o.factor);
  const Tensor sigma = draws().uniform(o.sigma.low, o.sigma.high, {2}) + kLeast;
  const int64_t rows = o.kernel_size[0], columns = o.kernel_size[1];
  // Keras makes the kernel of the other two sides, and gives it this shape.
  const Tensor kernel = internal::gaussian_kernel(columns, rows, sigma[0].item<double>(),
                                                  sigma[1].item<double>(), images)
                            .reshape({rows, columns});
  return at::where(change, internal::blurred(images, kernel), images)
      .clamp(o.value_range.low, o.value_range.high);
}

RandomErasingLayer::RandomErasingLayer(RandomErasingOptions options)
    : LayerImpl(erasing(std::move(options))) {
  set_up(config().data_format, config().seed);
}

Tensor RandomErasingLayer::transform(const Tensor& images) {
  const RandomErasingOptions& o = config();
  const auto inside = [&](int64_t axis) {
    const int64_t size = images.size(axis);
    const Tensor length = one_each(images, o.scale).sqrt() * size;
    const Tensor first = one_each(images, {0, 1}) * (size - length);
    Shape shape = {1, 1, 1, 1};
    shape[static_cast<std::size_t>(axis)] = size;
    const Tensor at = at::arange(size, images.options()).view(shape);
    return at.ge(first).logical_and(at < first + length);
  };
  const Tensor columns = inside(2), rows = inside(1);
  const Tensor change = chosen(images, o.factor);
  const Tensor value = o.fill_value ? at::full_like(images, *o.fill_value)
                                    : draws().normal(0, 1, images) * o.value_range.high;
  return at::where(change.logical_and(columns).logical_and(rows),
                   value.clamp(o.value_range.low, o.value_range.high), images);
}

}  // namespace cohort::keras
