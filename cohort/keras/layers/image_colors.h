// SPDX-License-Identifier: Apache-2.0
//
// Images in other colours, with the names, options and defaults of Keras 3: those that draw do so
// while training, for each image by itself, and otherwise leave images as they are.
//
//   keras::RandomBrightness(0.2, {.value_range = {0, 1}});
//   keras::RandomContrast({0.1, 0.3});
//   keras::AutoContrast();                             // always
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layers/image_layer.h"

namespace cohort::keras {

/// Of most layers below.
struct ColorOptions {
  FactorRange value_range = {0, 255};  ///< Of the images.
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct ColorConfig : ColorOptions {
  using Given = ColorOptions;
  FactorRange factor = 0;
  static void fields(auto& c, auto&& f) {
    f.required("factor", c.factor);
    f("value_range", c.value_range);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

/// Base of layers that change colours by a factor.
class ColorLayer : public LayerImpl<ColorConfig, ImageLayer> {
 protected:
  /// `least` and `most`: between which the factor has to be.
  ColorLayer(ColorConfig config, const char* who, double least, double most);
  Tensor clamped(const Tensor& images) const;
};

struct RandomBrightnessLayer : ColorLayer {
  explicit RandomBrightnessLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_brightness", -1, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Adds `factor` times the width of value_range. TF: keras.layers.RandomBrightness.
using RandomBrightness = internal::FactorHandle<RandomBrightnessLayer>;

struct RandomContrastLayer : ColorLayer {
  explicit RandomContrastLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_contrast", 0, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Multiplies what differs from each channel's mean by a number in [1 - low, 1 + high).
/// TF: keras.layers.RandomContrast.
using RandomContrast = internal::FactorHandle<RandomContrastLayer>;

struct RandomHueLayer : ColorLayer {
  explicit RandomHueLayer(ColorConfig config) : ColorLayer(std::move(config), "random_hue", 0, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Turns the hue by half of `factor` of the circle, to either side. Shapes: 3 channels.
/// TF: keras.layers.RandomHue.
using RandomHue = internal::FactorHandle<RandomHueLayer>;

struct RandomSaturationLayer : ColorLayer {
  explicit RandomSaturationLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_saturation", -1, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Multiplies the saturation by factor / (1 - factor): 0.5 leaves it, 0 makes gray.
/// Shapes: 3 channels. TF: keras.layers.RandomSaturation.
using RandomSaturation = internal::FactorHandle<RandomSaturationLayer>;

struct RandomColorDegenerationLayer : ColorLayer {
  explicit RandomColorDegenerationLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_color_degeneration", -1, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Goes `factor` of the way to the gray image. TF: keras.layers.RandomColorDegeneration.
using RandomColorDegeneration = internal::FactorHandle<RandomColorDegenerationLayer>;

struct RandomPosterizationLayer : ColorLayer {
  explicit RandomPosterizationLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_posterization", 1, 8) {}
  Tensor transform(const Tensor& images) override;
};
/// Keeps the upper `factor` bits of 8: of two numbers, from the first to below the second.
/// TF: keras.layers.RandomPosterization.
using RandomPosterization = internal::FactorHandle<RandomPosterizationLayer>;

struct RandomSharpnessLayer : ColorLayer {
  explicit RandomSharpnessLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_sharpness", 0, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Between smoothed (0), as it is (0.5) and sharpened (1). TF: keras.layers.RandomSharpness.
using RandomSharpness = internal::FactorHandle<RandomSharpnessLayer>;

struct RandomInvertLayer : ColorLayer {
  explicit RandomInvertLayer(ColorConfig config)
      : ColorLayer(std::move(config), "random_invert", 0, 1) {}
  Tensor transform(const Tensor& images) override;
};
/// Subtracts images from the largest value, as likely as a number of `factor` says.
/// TF: keras.layers.RandomInvert.
class RandomInvert : public Layer {
 public:
  explicit RandomInvert(FactorRange factor = 1.0, ColorOptions options = {})
      : Layer(std::make_shared<RandomInvertLayer>(ColorConfig{std::move(options), factor})) {}
};

struct RandomGrayscaleOptions {
  double factor = 0.5;  ///< How likely.
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("factor", c.factor);
    f.extra("seed", c.seed, {});
    f("data_format", c.data_format);
  }
};

class RandomGrayscaleLayer : public LayerImpl<RandomGrayscaleOptions, ImageLayer> {
 public:
  explicit RandomGrayscaleLayer(RandomGrayscaleOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};
/// Makes images gray, with as many channels. TF: keras.layers.RandomGrayscale.
using RandomGrayscale = Handle<RandomGrayscaleLayer>;

struct RandomColorJitterOptions {
  FactorRange value_range = {0, 255};
  std::optional<FactorRange> brightness_factor = {};
  std::optional<FactorRange> contrast_factor = {};
  std::optional<FactorRange> saturation_factor = {};
  std::optional<FactorRange> hue_factor = {};
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("value_range", c.value_range);
    f("brightness_factor", c.brightness_factor);
    f("contrast_factor", c.contrast_factor);
    f("saturation_factor", c.saturation_factor);
    f("hue_factor", c.hue_factor);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandomColorJitterLayer : public LayerImpl<RandomColorJitterOptions, ImageLayer> {
 public:
  explicit RandomColorJitterLayer(RandomColorJitterOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};
/// Brightness, contrast, saturation and hue, those that are given, in this order.
/// TF: keras.layers.RandomColorJitter.
using RandomColorJitter = Handle<RandomColorJitterLayer>;

struct SolarizationOptions {
  FactorRange addition_factor = 0;
  FactorRange threshold_factor = 0;
  FactorRange value_range = {0, 255};
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("value_range", c.value_range);
    f("addition_factor", c.addition_factor);
    f("threshold_factor", c.threshold_factor);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class SolarizationLayer : public LayerImpl<SolarizationOptions, ImageLayer> {
 public:
  explicit SolarizationLayer(SolarizationOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};
/// Adds a number (of 255 levels), and inverts what is not below a threshold.
/// TF: keras.layers.Solarization.
using Solarization = Handle<SolarizationLayer>;

struct AutoContrastOptions {
  FactorRange value_range = {0, 255};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("value_range", c.value_range);
    f("data_format", c.data_format);
  }
};

class AutoContrastLayer : public LayerImpl<AutoContrastOptions, ImageLayer> {
 public:
  explicit AutoContrastLayer(AutoContrastOptions options);

 protected:
  bool transforms_always() const override { return true; }
  Tensor transform(const Tensor& images) override;
};
/// Stretches each channel of each image over the whole value_range, whether training or not.
/// TF: keras.layers.AutoContrast.
using AutoContrast = Handle<AutoContrastLayer>;

struct EqualizationOptions {
  FactorRange value_range = {0, 255};
  int64_t bins = 256;
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("bins", c.bins);
    f("value_range", c.value_range);
    f("data_format", c.data_format);
  }
};

class EqualizationLayer : public LayerImpl<EqualizationOptions, ImageLayer> {
 public:
  explicit EqualizationLayer(EqualizationOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};
/// While training, values of each channel by their ranks, so that all are as frequent; ranks are
/// those in the whole batch, as in Keras. TF: keras.layers.Equalization.
using Equalization = Handle<EqualizationLayer>;

struct ContrastLimitedAdaptiveHistogramEqualizationOptions {
  FactorRange value_range = {0, 255};
  double clip_limit = 4;  ///< How many times the mean a gray may count in a tile; 0: no limit.
  std::vector<int64_t> tile_grid_size = {8, 8};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("value_range", c.value_range);
    f("clip_limit", c.clip_limit);
    f.shape("tile_grid_size", c.tile_grid_size);
    f("data_format", c.data_format);
  }
};

class ContrastLimitedAdaptiveHistogramEqualizationLayer
    : public LayerImpl<ContrastLimitedAdaptiveHistogramEqualizationOptions, ImageLayer> {
 public:
  explicit ContrastLimitedAdaptiveHistogramEqualizationLayer(
      ContrastLimitedAdaptiveHistogramEqualizationOptions options);

 protected:
  bool transforms_always() const override { return true; }
  Tensor transform(const Tensor& images) override;
};
/// Equalizes each tile of an image by itself, whether training or not, and blends between tiles.
/// TF: keras.layers.ContrastLimitedAdaptiveHistogramEqualization.
using ContrastLimitedAdaptiveHistogramEqualization =
    Handle<ContrastLimitedAdaptiveHistogramEqualizationLayer>;

struct RandomGaussianBlurOptions {
  FactorRange factor = 1.0;  ///< How likely an image is blurred.
  std::vector<int64_t> kernel_size = {3, 3};
  FactorRange sigma = 1.0;  ///< One number is [0, sigma].
  FactorRange value_range = {0, 255};
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("factor", c.factor);
    f.shape("kernel_size", c.kernel_size);
    f("sigma", c.sigma);
    f("value_range", c.value_range);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandomGaussianBlurLayer : public LayerImpl<RandomGaussianBlurOptions, ImageLayer> {
 public:
  explicit RandomGaussianBlurLayer(RandomGaussianBlurOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};
/// Blurs by a kernel whose two deviations are drawn for the batch.
/// TF: keras.layers.RandomGaussianBlur.
using RandomGaussianBlur = Handle<RandomGaussianBlurLayer>;

struct RandomErasingOptions {
  FactorRange factor = 1.0;               ///< How likely a part is erased.
  FactorRange scale = {0.02, 0.33};       ///< Which part of each side, squared.
  std::optional<double> fill_value = {};  ///< Unset: normal numbers times the largest value.
  FactorRange value_range = {0, 255};
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("factor", c.factor);
    f("scale", c.scale);
    f("fill_value", c.fill_value);
    f("value_range", c.value_range);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandomErasingLayer : public LayerImpl<RandomErasingOptions, ImageLayer> {
 public:
  explicit RandomErasingLayer(RandomErasingOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};
/// Replaces a rectangle of each image. TF: keras.layers.RandomErasing.
using RandomErasing = Handle<RandomErasingLayer>;

}  // namespace cohort::keras
