// SPDX-License-Identifier: Apache-2.0
//
// Images moved, turned and bent while training, each its own way, with the names, options and
// defaults of Keras 3. Otherwise they stay as they are.
//
//   keras::RandomFlip({.mode = "horizontal"});
//   keras::RandomRotation(0.1);                       // up to a tenth of a full turn
//   keras::RandomZoom({-0.2, 0.3}, {.fill_mode = "constant"});
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/layers/image_layer.h"

namespace cohort::keras {

struct RandomFlipOptions {
  std::string mode = "horizontal_and_vertical";  ///< Or "horizontal", or "vertical".
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("seed", c.seed);
    f("mode", c.mode);
    f("data_format", c.data_format);
  }
};

class RandomFlipLayer : public LayerImpl<RandomFlipOptions, ImageLayer> {
 public:
  explicit RandomFlipLayer(RandomFlipOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Mirrors half of the images; in mode "horizontal_and_vertical" both ways at once, as Keras.
/// TF: keras.layers.RandomFlip.
using RandomFlip = Handle<RandomFlipLayer>;

/// Of the layers below: how pixels are read between others and outside of the image.
struct GeometryOptions {
  std::string fill_mode = "reflect";       ///< Or "constant", "wrap" or "nearest".
  std::string interpolation = "bilinear";  ///< Or "nearest".
  std::optional<uint64_t> seed = {};
  double fill_value = 0;  ///< Of fill_mode "constant".
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void common_fields(auto& c, auto&& f) {
    f("fill_mode", c.fill_mode);
    f("interpolation", c.interpolation);
    f("seed", c.seed);
    f("fill_value", c.fill_value);
    f("data_format", c.data_format);
  }
};

struct RandomRotationConfig : GeometryOptions {
  using Given = GeometryOptions;
  FactorRange factor = 0;
  static void fields(auto& c, auto&& f) {
    f.required("factor", c.factor);
    GeometryOptions::common_fields(c, f);
  }
};

class RandomRotationLayer : public LayerImpl<RandomRotationConfig, ImageLayer> {
 public:
  explicit RandomRotationLayer(RandomRotationConfig config);

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Turns by `factor` of a full turn, to the left where it is positive.
/// Errors: InvalidArgument for a factor out of [-1, 1]. TF: keras.layers.RandomRotation.
using RandomRotation = internal::FactorHandle<RandomRotationLayer>;

struct RandomTranslationConfig : GeometryOptions {
  FactorRange height_factor = 0;
  FactorRange width_factor = 0;
  static void fields(auto& c, auto&& f) {
    f.required("height_factor", c.height_factor);
    f.required("width_factor", c.width_factor);
    GeometryOptions::common_fields(c, f);
  }
};

class RandomTranslationLayer : public LayerImpl<RandomTranslationConfig, ImageLayer> {
 public:
  explicit RandomTranslationLayer(RandomTranslationConfig config);

 protected:
  Tensor transform(const Tensor& images) override;

 private:
  FactorRange height_, width_;
};

/// Moves by a part of the height and of the width: down and to the right where it is positive.
/// Errors: InvalidArgument for factors out of [-1, 1]. TF: keras.layers.RandomTranslation.
class RandomTranslation : public Layer {
 public:
  RandomTranslation(FactorRange height_factor, FactorRange width_factor,
                    GeometryOptions options = {});
};

/// As GeometryOptions.
struct RandomZoomOptions {
  std::optional<FactorRange> width_factor = {};  ///< Unset: the width as the height.
  std::string fill_mode = "reflect";
  std::string interpolation = "bilinear";
  std::optional<uint64_t> seed = {};
  double fill_value = 0;
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct RandomZoomConfig : RandomZoomOptions {
  using Given = RandomZoomOptions;
  FactorRange height_factor = 0;
  static void fields(auto& c, auto&& f) {
    f.required("height_factor", c.height_factor);
    f("width_factor", c.width_factor);
    GeometryOptions::common_fields(c, f);
  }
};

class RandomZoomLayer : public LayerImpl<RandomZoomConfig, ImageLayer> {
 public:
  explicit RandomZoomLayer(RandomZoomConfig config);

 protected:
  Tensor transform(const Tensor& images) override;

 private:
  FactorRange height_;
  std::optional<FactorRange> width_;
};

/// Shows 1 + factor of the height and of the width: a negative factor zooms in.
/// Errors: InvalidArgument for factors out of (-1, 1]. TF: keras.layers.RandomZoom.
using RandomZoom = internal::FactorHandle<RandomZoomLayer>;

/// As GeometryOptions.
struct RandomShearOptions {
  FactorRange x_factor = 0;
  FactorRange y_factor = 0;
  std::string fill_mode = "reflect";
  std::string interpolation = "bilinear";
  std::optional<uint64_t> seed = {};
  double fill_value = 0;
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("x_factor", c.x_factor);
    f("y_factor", c.y_factor);
    GeometryOptions::common_fields(c, f);
  }
};

class RandomShearLayer : public LayerImpl<RandomShearOptions, ImageLayer> {
 public:
  explicit RandomShearLayer(RandomShearOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Slants along x and along y, both to the same side, which is drawn.
/// Errors: InvalidArgument for factors out of [0, 1]. TF: keras.layers.RandomShear.
using RandomShear = Handle<RandomShearLayer>;

struct RandomPerspectiveOptions {
  FactorRange factor = 1.0;  ///< How likely an image is changed.
  double scale = 1.0;        ///< How far its corners move.
  std::string interpolation = "bilinear";
  double fill_value = 0;
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("factor", c.factor);
    f("scale", c.scale);
    f("interpolation", c.interpolation);
    f("fill_value", c.fill_value);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandomPerspectiveLayer : public LayerImpl<RandomPerspectiveOptions, ImageLayer> {
 public:
  explicit RandomPerspectiveLayer(RandomPerspectiveOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Moves the corners, by up to half of scale times how far they are from the first one.
/// Errors: InvalidArgument for a factor or a scale out of [0, 1].
/// TF: keras.layers.RandomPerspective.
using RandomPerspective = Handle<RandomPerspectiveLayer>;

struct RandomElasticTransformOptions {
  FactorRange factor = 1.0;  ///< How likely an image is changed.
  FactorRange scale = 1.0;   ///< How much.
  std::string interpolation = "bilinear";
  std::string fill_mode = "reflect";
  double fill_value = 0;
  FactorRange value_range = {0, 255};
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("factor", c.factor);
    f("scale", c.scale);
    f("interpolation", c.interpolation);
    f("fill_mode", c.fill_mode);
    f("fill_value", c.fill_value);
    f("value_range", c.value_range);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandomElasticTransformLayer : public LayerImpl<RandomElasticTransformOptions, ImageLayer> {
 public:
  explicit RandomElasticTransformLayer(RandomElasticTransformOptions options);

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Moves each pixel by smooth noise. Along x and y the noise is drawn apart; Keras on TensorFlow
/// draws it once for both. TF: keras.layers.RandomElasticTransform.
using RandomElasticTransform = Handle<RandomElasticTransformLayer>;

}  // namespace cohort::keras
