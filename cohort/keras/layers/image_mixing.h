// SPDX-License-Identifier: Apache-2.0
//
// Images mixed with each other, and changed by layers that are drawn, while training, with the
// names, options and defaults of Keras 3.
//
//   keras::RandAugment({.num_ops = 3, .factor = 0.3});
//   const Tensor x = zeros({2, 8, 8, 3}), one_hot = ones({2, 4});
//   data::Element mixed =
//       keras::MixUp()(data::Element::named({{"images", x}, {"labels", one_hot}}));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layers/image_layer.h"

namespace cohort::keras {

/// Base of layers that mix each image with another one of the batch, and their labels likewise.
class MixingLayer : public ImageLayer {
 public:
  using ImageLayer::ImageLayer;
  Element call_nest(const Element& inputs, const CallArgs& args) override;
  ElementSpec compute_output_spec(const ElementSpec& inputs) const override;

 protected:
  struct Mix {
    Tensor images;
    Tensor others;  ///< Which image each is mixed with. Shapes: [b].
    Tensor weight;  ///< How much of each image is left. Shapes: [b].
  };
  /// Of images channels last, in the type that is computed in, and not none.
  virtual Mix mix(const Tensor& images) = 0;
  Tensor transform(const Tensor& images) override;
  Tensor drawn_order(int64_t count) const;
  /// Numbers in [0, 1], whose density is symmetric. Shapes: [count].
  Tensor drawn_beta(double alpha, int64_t count) const;
};

struct MixUpOptions {
  double alpha = 0.2;  ///< 1: evenly; less: mostly one of the two.
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("alpha", c.alpha);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class MixUpLayer : public LayerImpl<MixUpOptions, MixingLayer> {
 public:
  explicit MixUpLayer(MixUpOptions options);

 protected:
  Mix mix(const Tensor& images) override;
};

/// Sums of two images and of their labels, by weights that are drawn. Called with images, or with
/// {"images", "labels"}; labels are numbers for each class, [b, classes].
/// Errors: InvalidArgument for alpha <= 0, and for labels of another shape. TF: keras.layers.MixUp.
using MixUp = Handle<MixUpLayer>;

struct CutMixOptions {
  FactorRange factor = 1.0;  ///< As alpha of MixUp; drawn for each batch.
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("factor", c.factor);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class CutMixLayer : public LayerImpl<CutMixOptions, MixingLayer> {
 public:
  explicit CutMixLayer(CutMixOptions options);

 protected:
  Mix mix(const Tensor& images) override;
};

/// A rectangle of each image is another image's, and the labels are mixed by its area; called as
/// MixUp. TF: keras.layers.CutMix.
using CutMix = Handle<CutMixLayer>;

struct RandAugmentOptions {
  FactorRange value_range = {0, 255};
  int64_t num_ops = 2;       ///< How many layers, one after the other.
  FactorRange factor = 0.5;  ///< How strong each is.
  std::string interpolation = "bilinear";
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("value_range", c.value_range);
    f("num_ops", c.num_ops);
    f("factor", c.factor);
    f("interpolation", c.interpolation);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class RandAugmentLayer : public LayerImpl<RandAugmentOptions, ImageLayer> {
 public:
  explicit RandAugmentLayer(RandAugmentOptions options);
  void build(const Shape& input_shape) override;

 protected:
  Tensor transform(const Tensor& images) override;
};

/// num_ops of eleven layers (shear, translation, rotation, brightness, degeneration, contrast,
/// sharpness, posterization, solarization, AutoContrast, Equalization), drawn for each batch.
/// TF: keras.layers.RandAugment.
using RandAugment = Handle<RandAugmentLayer>;

struct AugMixOptions {
  FactorRange value_range = {0, 255};
  int64_t num_chains = 3;
  int64_t chain_depth = 3;   ///< Layers of a chain at most.
  FactorRange factor = 0.3;  ///< How strong each layer is.
  double alpha = 1;          ///< 1: shares are drawn evenly; less: mostly one of them.
  bool all_ops = true;       ///< Brightness, degeneration, contrast and sharpness, too.
  std::string interpolation = "bilinear";
  std::optional<uint64_t> seed = {};
  std::string data_format = "channels_last";
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
  static void fields(auto& c, auto&& f) {
    f("value_range", c.value_range);
    f("num_chains", c.num_chains);
    f("chain_depth", c.chain_depth);
    f("factor", c.factor);
    f("alpha", c.alpha);
    f("all_ops", c.all_ops);
    f("interpolation", c.interpolation);
    f("seed", c.seed);
    f("data_format", c.data_format);
  }
};

class AugMixLayer : public LayerImpl<AugMixOptions, ImageLayer> {
 public:
  explicit AugMixLayer(AugMixOptions options);
  void build(const Shape& input_shape) override;

 protected:
  Tensor transform(const Tensor& images) override;
};

/// Images mixed with a sum of what num_chains chains make of them, each of chain_depth layers out
/// of RandAugment's or none, drawn for each batch; the shares are drawn, too (Dirichlet and beta).
/// Errors: InvalidArgument for num_chains < 1, chain_depth < 0, either above 1,000, and alpha <= 0.
/// TF: keras.layers.AugMix.
using AugMix = Handle<AugMixLayer>;

}  // namespace cohort::keras
