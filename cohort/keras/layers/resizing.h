// SPDX-License-Identifier: Apache-2.0
//
// Images in other sizes, with the names, options and defaults of Keras 3.
//
//   keras::Resizing(224, 224, {.crop_to_aspect_ratio = true});
//   keras::RandomCrop(200, 200);
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/keras/internal/shape_of_training.h"
#include "cohort/keras/layers/image_layer.h"

namespace cohort::keras {

struct ResizingOptions {
  /// "nearest", "bilinear", "bicubic", "area", "lanczos3" or "lanczos5".
  std::string interpolation = "bilinear";
  bool crop_to_aspect_ratio = false;  ///< Cuts off what does not fit, instead of distorting.
  bool pad_to_aspect_ratio = false;   ///< Or leaves borders, of fill_value.
  double fill_value = 0;
  bool antialias = false;  ///< A smaller image takes in all pixels.
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct ResizingConfig : ResizingOptions {
  int64_t height = 0;
  int64_t width = 0;
  static void fields(auto& c, auto&& f) {
    f.required("height", c.height);
    f.required("width", c.width);
    f("interpolation", c.interpolation);
    f("crop_to_aspect_ratio", c.crop_to_aspect_ratio);
    f("pad_to_aspect_ratio", c.pad_to_aspect_ratio);
    f.constant("fill_mode", "constant");
    f("fill_value", c.fill_value);
    f("antialias", c.antialias);
    f("data_format", c.data_format);
  }
};

/// Of Resizing, see core.h; as the next ones.
class ResizingLayer : public LayerImpl<ResizingConfig, ImageLayer> {
 public:
  explicit ResizingLayer(ResizingConfig config);
  Tensor call(const Tensor& images, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Images of height x width. Whole numbers stay whole, and of their type.
/// Errors: InvalidArgument for both aspect ratios at once, and sizes below 1.
/// TF: keras.layers.Resizing, with tf.image.resize's numbers.
class Resizing : public Layer {
 public:
  Resizing(int64_t height, int64_t width, ResizingOptions options = {});
};

struct CenterCropOptions {
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct CenterCropConfig : CenterCropOptions {
  int64_t height = 0;
  int64_t width = 0;
  static void fields(auto& c, auto&& f) {
    f.required("height", c.height);
    f.required("width", c.width);
    f("data_format", c.data_format);
  }
};

class CenterCropLayer : public LayerImpl<CenterCropConfig, ImageLayer> {
 public:
  explicit CenterCropLayer(CenterCropConfig config);
  Shape compute_output_shape(const Shape& input_shape) const override;

 protected:
  bool transforms_always() const override { return true; }
  Tensor transform(const Tensor& images) override;
};

/// The middle of the images; where they are smaller than that, the greatest part with the same
/// aspect ratio, resized. TF: keras.layers.CenterCrop.
class CenterCrop : public Layer {
 public:
  CenterCrop(int64_t height, int64_t width, CenterCropOptions options = {});
};

struct RandomCropOptions {
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct RandomCropConfig : RandomCropOptions {
  int64_t height = 0;
  int64_t width = 0;
  static void fields(auto& c, auto&& f) {
    f.required("height", c.height);
    f.required("width", c.width);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandomCropLayer : public LayerImpl<RandomCropConfig, ImageLayer>,
                        public internal::ShapeOfTraining {
 public:
  explicit RandomCropLayer(RandomCropConfig config);
  Shape compute_output_shape(const Shape& input_shape) const override;

 protected:
  Tensor transform(const Tensor& images) override;
};

/// While training a part of that size at a random position, the same for a batch; of images that
/// are not larger along both sides, as in Keras, a corner that is resized. Otherwise the
/// images as they are. TF: keras.layers.RandomCrop.
class RandomCrop : public Layer {
 public:
  RandomCrop(int64_t height, int64_t width, RandomCropOptions options = {});
};

}  // namespace cohort::keras
