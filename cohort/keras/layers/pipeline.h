// SPDX-License-Identifier: Apache-2.0
//
// Layers one after the other as one layer, for preprocessing.
//
//   keras::Pipeline augment({keras::RandomFlip(), keras::RandomRotation(0.1)});
#pragma once

#include <string>
#include <vector>

#include "cohort/keras/layer.h"

namespace cohort::keras {

struct PipelineOptions {
  std::string name = {};
  DTypePolicy dtype = {};
  bool trainable = true;
};

struct PipelineConfig : PipelineOptions {
  std::vector<Layer> layers = {};
  static void fields(auto& c, auto&& f) { f.required("layers", c.layers); }
};

/// Of Pipeline, see core.h.
class PipelineLayer : public LayerImpl<PipelineConfig> {
 public:
  explicit PipelineLayer(PipelineConfig config);
  void build(const Shape& input_shape) override;
  Tensor call(const Tensor& input, const CallArgs& args) override;
  Shape compute_output_shape(const Shape& input_shape) const override;
  /// Keras's class has no arguments `trainable` and `dtype`, and would refuse a file with them.
  Config get_config() const override;
};

/// What the layers make of the input, one after the other. TF: keras.layers.Pipeline.
class Pipeline : public Layer {
 public:
  explicit Pipeline(std::vector<Layer> layers, PipelineOptions options = {});
};

}  // namespace cohort::keras
