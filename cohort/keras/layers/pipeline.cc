// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/pipeline.h"

#include <utility>

namespace cohort::keras {

PipelineLayer::PipelineLayer(PipelineConfig config) : LayerImpl(std::move(config)) {
  set_autocast(false);
  for (const Layer& layer : this->config().layers) track(layer, "_pipeline_layers/");
}

void PipelineLayer::build(const Shape& input_shape) {
  Shape shape = input_shape;
  for (const Layer& layer : config().layers) {
    layer.base().ensure_built(shape);
    shape = layer.base().compute_output_shape(shape);
  }
}

Tensor PipelineLayer::call(const Tensor& input, const CallArgs& args) {
  CallArgs own;
  own.training = args.training;
  Tensor x = input;
  for (const Layer& layer : config().layers) x = layer(x, own);
  return x;
}

Shape PipelineLayer::compute_output_shape(const Shape& input_shape) const {
  Shape shape = input_shape;
  for (const Layer& layer : config().layers) shape = layer.base().compute_output_shape(shape);
  return shape;
}

Config PipelineLayer::get_config() const {
  const Config all = LayerImpl::get_config();
  return Config::object({{"layers", all.at("layers")}, {"name", all.at("name")}});
}

Pipeline::Pipeline(std::vector<Layer> layers, PipelineOptions options)
    : Layer(
          std::make_shared<PipelineLayer>(PipelineConfig{std::move(options), std::move(layers)})) {}

}  // namespace cohort::keras
