// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/sequential.h"

#include "cohort/base/check.h"

namespace cohort::keras {

Sequential::Sequential(std::vector<Layer> layers, std::string name) : Model(std::move(name)) {
  for (Layer& layer : layers) add(std::move(layer));
}

void Sequential::add(Layer layer) {
  COHORT_CHECK_STATE(!built() || next_shape_,
                     "[sequential.add] expected a model that is not built "
                     "yet, got \"",
                     name(), "\", which has its variables");
  track(layer);
  if (layers().size() == 1) {
    next_shape_ = layer.base().declared_input_shape();
    if (!next_shape_) return;
    ensure_built(*next_shape_);
  } else if (next_shape_) {
    layer.base().ensure_built(*next_shape_);
  } else {
    return;
  }
  next_shape_ = layer.base().compute_output_shape(*next_shape_);
}

std::optional<Shape> Sequential::declared_input_shape() const {
  return layers().empty() ? std::nullopt : layers().front().base().declared_input_shape();
}

void Sequential::build(const Shape& input_shape) {
  Shape shape = input_shape;
  for (const Layer& layer : layers()) {
    layer.base().ensure_built(shape);
    shape = layer.base().compute_output_shape(shape);
  }
  input_shape_ = input_shape;
}

std::vector<Shape> Sequential::layer_output_shapes() const {
  std::vector<Shape> shapes;
  if (!input_shape_) return shapes;
  Shape shape = *input_shape_;
  for (const Layer& layer : layers()) {
    shape = layer.base().compute_output_shape(shape);
    shapes.push_back(shape);
  }
  return shapes;
}

Tensor Sequential::call(const Tensor& input, const CallArgs& args) {
  Tensor x = input;
  for (const Layer& layer : layers()) x = layer(x, args);
  return x;
}

Shape Sequential::compute_output_shape(const Shape& input_shape) const {
  Shape shape = input_shape;
  for (const Layer& layer : layers()) shape = layer.base().compute_output_shape(shape);
  return shape;
}

}  // namespace cohort::keras
