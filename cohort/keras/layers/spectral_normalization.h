// SPDX-License-Identifier: Apache-2.0
//
// A layer whose kernel keeps a spectral norm of about 1, with the names, options and defaults of
// Keras 3.
//
//   keras::SpectralNormalization(keras::Conv2D(64, 3));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct SpectralNormalizationOptions {
  int64_t power_iterations = 1;
  DTypePolicy dtype = {};
  std::string name = {};
  bool trainable = true;
};

struct SpectralNormalizationConfig : SpectralNormalizationOptions {
  std::optional<Layer> layer = {};
  static void fields(auto& c, auto&& f) {
    f.required("layer", c.layer);
    f("power_iterations", c.power_iterations);
  }
};

/// Of SpectralNormalization, see core.h.
class SpectralNormalizationLayer : public LayerImpl<SpectralNormalizationConfig> {
 public:
  explicit SpectralNormalizationLayer(SpectralNormalizationConfig config);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;

 protected:
  /// The kernel is the wrapper's, too, as Keras has it.
  std::vector<Variable> stored_weights() const override;

 private:
  const Layer& layer() const { return *config().layer; }
  void normalize();

  Variable kernel_, vector_u_;
};

/// The layer, with its kernel (or embeddings) divided by its greatest singular value before each
/// call while training. That value is estimated by power iteration, which goes on from call to
/// call; the division stays, as in Keras, so the weights that are saved are the divided ones.
/// A mask goes to the layer, and what that makes of it goes on.
/// Order: in a replica that call is a merge point, in which all replicas divide alike. A step that
///        fails leaves the weights as they were.
/// Errors: InvalidArgument for power_iterations < 1 and a layer without such a weight; of LibTorch
///         for a gradient through two training calls of one tape: the second has changed the
///         weights of the first (give it the rows of both at once).
/// TF: keras.layers.SpectralNormalization.
class SpectralNormalization : public Layer {
 public:
  explicit SpectralNormalization(Layer layer, SpectralNormalizationOptions options = {});
};

}  // namespace cohort::keras
