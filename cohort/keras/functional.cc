// SPDX-License-Identifier: Apache-2.0
//
// Models that were drawn.
#include <algorithm>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/base/scope_exit.h"
#include "cohort/keras/compiled_model.h"
#include "cohort/keras/internal/graph.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/layers/text_input_layer.h"
#include "cohort/keras/model.h"
#include "cohort/keras/sequential.h"
#include "cohort/keras/text_input.h"

namespace cohort::keras {

KerasTensor Input(Shape shape, InputOptions options) {
  shape.insert(shape.begin(), options.batch_size);
  const TensorSpec spec{shape, options.dtype};
  const Layer layer(std::make_shared<DeclaredInput>(
      InputLayerConfig{std::move(shape), options.dtype, std::move(options.name)}));
  const auto node =
      std::make_shared<const internal::CallNode>(internal::CallNode{layer, {}, {}, spec, 0});
  int first = 0;
  return KerasTensor::of_node(node, spec, first);
}

KerasTensor TextInput(Shape shape, TextInputOptions options) {
  shape.insert(shape.begin(), options.batch_size);
  const TensorSpec spec = TensorSpec::strings(shape);
  const Layer layer(std::make_shared<DeclaredTextInput>(
      InputLayerConfig{std::move(shape), floatx(), std::move(options.name)}));
  const auto node =
      std::make_shared<const internal::CallNode>(internal::CallNode{layer, {}, {}, spec, 0});
  int first = 0;
  return KerasTensor::of_node(node, spec, first);
}

Model::Model(const KerasTensor& inputs, const KerasTensor& outputs, std::string name)
    : Model(std::move(name)) {
  graph_ = std::make_shared<const internal::Graph>(inputs, outputs);
  for (const Layer& layer : graph_->layers()) track(layer);
  ensure_built_for(inputs.spec());
}

const KerasTensor& Model::inputs() const {
  COHORT_CHECK_STATE(is_functional(), "[inputs] expected a functional model, got ", class_name(),
                     " \"", name(), "\"");
  return graph_->inputs();
}

const KerasTensor& Model::outputs() const {
  COHORT_CHECK_STATE(is_functional(), "[outputs] expected a functional model, got ", class_name(),
                     " \"", name(), "\"");
  return graph_->outputs();
}

std::vector<std::string> Model::output_names() const {
  return is_functional() ? graph_->output_names() : std::vector<std::string>();
}

Layer Model::get_layer(std::string_view name) const {
  std::vector<std::string> names;
  for (const Layer& layer : layers()) {
    if (layer.name() == name) return layer;
    names.push_back(layer.name());
  }
  throw InvalidArgument(str_cat("[get_layer] expected one of the layers ", join(names, ", "),
                                " of model \"", this->name(), "\", got \"", name, "\""));
}

Layer Model::get_layer(int64_t index) const {
  const auto count = static_cast<int64_t>(layers().size());
  COHORT_CHECK_ARG(index >= 0 && index < count, "[get_layer] expected an index below ", count,
                   " in model \"", name(), "\", got ", index);
  return layers()[static_cast<std::size_t>(index)];
}

std::string Model::class_name() const {
  return typeid(*this) == typeid(Model) ? "Functional" : LayerBase::class_name();
}

Tensor Model::call(const Tensor& input, const CallArgs& args) {
  if (is_functional()) {
    const Element out = graph_->run(input, args);
    COHORT_CHECK_ARG(out.is_tensor(), "[", name(), "] expected a model with one output, got ",
                     out.spec().to_string(),
                     ": call it with an Element, model(Element(x)), which gives all of them");
    return out.tensor();
  }
  // Of a class that overrides call_nest alone.
  thread_local const Model* asked = nullptr;
  COHORT_CHECK_STATE(asked != this, "[", name(),
                     "] expected a model of inputs and outputs, or of a class that overrides call "
                     "or call_nest, got ",
                     class_name());
  const auto* const outer = std::exchange(asked, this);
  const cohort::internal::base::ScopeExit restore([outer] { asked = outer; });
  return call_nest(input, args).tensor();
}

Element Model::call_nest(const Element& inputs, const CallArgs& args) {
  const bool texts = inputs.size() == 1 && inputs[0].has_value() && inputs[0].is_string();
  if (texts && dynamic_cast<const Sequential*>(this) != nullptr) {
    Element x = inputs[0];
    for (const Layer& layer : layers()) {
      x = x.is_tensor() ? Element(layer(x.tensor(), {.training = args.training}))
                        : layer(x, {.training = args.training});
    }
    return x;
  }
  return is_functional() ? graph_->run(inputs, args) : LayerBase::call_nest(inputs, args);
}

Shape Model::compute_output_shape(const Shape& input_shape) const {
  if (!is_functional()) return LayerBase::compute_output_shape(input_shape);
  const ElementSpec out = graph_->output_spec(TensorSpec{input_shape, DType::Undefined});
  COHORT_CHECK_ARG(out.is_leaf(), "[", name(), "] expected a model with one output, got ",
                   out.to_string());
  return out.leaf().shape;
}

ElementSpec Model::compute_output_spec(const ElementSpec& inputs) const {
  return is_functional() ? graph_->output_spec(inputs) : LayerBase::compute_output_spec(inputs);
}

std::vector<Shape> Model::layer_output_shapes() const {
  return is_functional() ? graph_->layer_shapes() : std::vector<Shape>();
}

Config Model::get_config() const {
  if (!is_functional()) return LayerBase::get_config();
  Config config = Config::object();
  config.set("name", name());
  config.set("trainable", trainable());
  config.set("layers", graph_->layers_config());
  config.set("input_layers", graph_->input_layers());
  config.set("output_layers", graph_->output_layers());
  return config;
}

// Of several inputs Keras keeps none.
Config Model::get_build_config() const {
  if (!is_functional()) return LayerBase::get_build_config();
  const bool one = !graph_->inputs().is_tuple();
  return Config::object(
      {{"input_shape", one ? ShapeValue::write(graph_->inputs().shape()) : Config()}});
}

}  // namespace cohort::keras
