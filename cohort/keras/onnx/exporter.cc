// SPDX-License-Identifier: Apache-2.0
//
// The walk over a model's layers.
#include "cohort/keras/onnx/exporter.h"

#include <algorithm>
#include <typeinfo>

#include "cohort/base/check.h"
#include "cohort/base/error.h"
#include "cohort/keras/internal/call_node.h"
#include "cohort/keras/internal/operation.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/onnx/call.h"
#include "cohort/keras/sequential.h"

namespace cohort::keras::internal::onnx {
namespace {

using data::ElementSpec;
using data::TensorSpec;

// Not a program's own class that has the name of one of Keras's.
bool is_kerass(const LayerBase& layer) {
  try {
    const Config config = layer.serialize();
    const Config* module = config.find("module");
    return module != nullptr && module->is_text() && module->text().starts_with("keras");
  } catch (const Unimplemented&) {
    return false;
  }
}

ElementSpec spec_of(const Values& values) {
  if (values.size() == 1) return values[0].spec;
  std::vector<ElementSpec> parts;
  for (const Value& value : values) parts.emplace_back(value.spec);
  return ElementSpec::tuple(std::move(parts));
}

void check_type(const Call& call) {
  const DTypePolicy& policy = call.layer.dtype_policy();
  if (policy.compute_dtype() == kFloat32 && policy.variable_dtype() == kFloat32) return;
  call.refuse(str_cat("with the dtype policy ", policy.name()));
}

// What calls gave, by node and output.
class Made {
 public:
  void add(const KerasTensor& tensor, const Value& value) {
    values_[{tensor.node().get(), tensor.output()}] = value;
  }
  void add(const CallNode* node, const Values& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values_[{node, static_cast<int>(i)}] = values[i];
    }
  }
  Values of(const KerasTensor& nest) const {
    Values out;
    if (!nest.has_value()) return out;
    for (const KerasTensor& one : nest.flat()) {
      out.push_back(values_.at({one.node().get(), one.output()}));
    }
    return out;
  }

 private:
  std::map<std::pair<const CallNode*, int>, Value> values_;
};

// The calls that the outputs need, in the order in which they were drawn.
std::vector<const CallNode*> calls_of(const Model& model) {
  std::map<const CallNode*, bool> seen;
  std::vector<const CallNode*> open, all;
  const auto visit = [&](const KerasTensor& nest) {
    for (const KerasTensor& one : nest.flat()) {
      const CallNode* node = one.node().get();
      if (!std::exchange(seen[node], true)) open.push_back(node);
    }
  };
  visit(model.outputs());
  while (!open.empty()) {
    const CallNode* node = open.back();
    open.pop_back();
    if (node->inputs.has_value()) all.push_back(node);
    for (const KerasTensor& needed : node->needs()) visit(needed);
  }
  std::ranges::sort(all, {}, &CallNode::number);
  return all;
}

}  // namespace

Exporter::Exporter() {
  add_activations(conversions_);
  add_core(conversions_);
  add_reshaping(conversions_);
  add_convolutions(conversions_);
  add_pooling(conversions_);
  add_normalizations(conversions_);
  add_merging(conversions_);
  add_recurrent(conversions_);
  add_attention(conversions_);
  add_preprocessing(conversions_);
}

Values Exporter::convert_call(const Call& call) {
  const LayerBase& layer = call.layer;
  check_type(call);
  const Conversion& how = conversions_.at(layer.class_name());
  Values out = how.convert(call);
  const std::vector<TensorSpec> specs = layer.compute_output_spec(spec_of(call.in)).flat();
  COHORT_CHECK_STATE(specs.size() == out.size(), "[export_to] expected ", specs.size(),
                     " outputs of layer \"", layer.name(), "\", got ", out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].spec = specs[i];
    if (how.keeps_type) out[i].spec.dtype = call.in[0].spec.dtype;
    if (!how.knows_masks && layer.supports_masking()) out[i].mask = call.in[0].mask;
  }
  return out;
}

Values Exporter::convert(const LayerBase& layer, const Values& in, const Told& told) {
  const auto* model = dynamic_cast<const Model*>(&layer);
  const auto* operation = dynamic_cast<const Operation*>(&layer);
  const std::string outer = g_.scope();
  g_.enter(outer.empty() ? layer.name() : str_cat(outer, "/", layer.name()));
  Values out = in;
  if (model != nullptr && typeid(layer) == typeid(Sequential)) {
    for (const Layer& part : model->layers()) {
      const bool is_input = dynamic_cast<const DeclaredInput*>(&part.base()) != nullptr;
      if (!is_input) out = convert(part.base(), out);
    }
  } else if (model != nullptr && model->class_name() == "Functional") {
    out = convert_drawing(*model, in);
  } else if (operation != nullptr) {
    const TensorSpec spec = layer.compute_output_spec(spec_of(in)).leaf();
    out = convert_operation({*this, g_, layer, layer.get_config(), in}, spec);
    out.at(0).spec = spec;
  } else {
    const bool is_known = conversions_.contains(layer.class_name()) && is_kerass(layer);
    const Call call{*this, g_, layer, is_known ? layer.get_config() : Config(), in, told};
    if (!is_known) call.refuse("");
    out = convert_call(call);
  }
  g_.enter(outer);
  return out;
}

Values Exporter::convert_drawing(const Model& model, const Values& in) {
  Made made;
  const std::vector<KerasTensor> inputs = model.inputs().flat();
  COHORT_CHECK_ARG(inputs.size() == in.size(), "[export_to] expected ", inputs.size(),
                   " inputs of model \"", model.name(), "\", got ", in.size());
  for (std::size_t i = 0; i < in.size(); ++i) made.add(inputs[i], in[i]);
  for (const CallNode* node : calls_of(model)) {
    const LayerBase& layer = node->layer.base();
    Values given = made.of(node->inputs);
    const Values masks = made.of(node->args.mask);
    for (std::size_t i = 0; i < std::min(masks.size(), given.size()); ++i) {
      const bool is_bool = masks[i].spec.dtype == kBool;
      given[i].mask = is_bool ? masks[i].name : g_.cast(masks[i].name, kBool);
    }
    if (node->args.training.value_or(false)) {
      Call{*this, g_, layer, {}, given}.refuse("that is called with training = true");
    }
    const Told told{made.of(node->args.initial_state), made.of(node->args.attention_mask),
                    node->args.use_causal_mask};
    made.add(node, convert(layer, given, told));
  }
  return made.of(model.outputs());
}

namespace {

// Of a model of one input that is no drawing.
Value input_of(const Model& model) {
  const auto* declared = dynamic_cast<const DeclaredInput*>(
      model.layers().empty() ? nullptr : &model.layers().front().base());
  const Config built = model.get_build_config();
  const Config* shape = built.find("input_shape");
  COHORT_CHECK_STATE(shape != nullptr && shape->is_list(),
                     "[export_to] expected a model that is built for one input, got \"",
                     model.name(), "\"");
  TensorSpec spec{.shape = ShapeValue::read(*shape)};
  if (declared == nullptr) return {"input_layer", spec};
  spec.dtype = declared->config().dtype;
  return {declared->name(), spec};
}

Names names_of_outputs(const Model& model, std::size_t count) {
  Names names = model.output_names();
  if (model.is_functional() && names.size() == count) return names;
  names = {model.layers().empty() ? "output" : model.layers().back().name()};
  names.resize(count, "output");
  return names;
}

}  // namespace

std::string file_of(const Model& model) {
  Exporter exporter;
  Writer& g = exporter.writer();
  const bool is_drawing = model.is_functional() && model.class_name() == "Functional";
  if (!is_drawing && typeid(model) != typeid(Sequential)) {
    throw Unimplemented(str_cat("[export_to] expected a Sequential or functional model, got ",
                                model.class_name(), " \"", model.name(),
                                "\", of which only its code says what it does"));
  }
  Values in;
  if (is_drawing) {
    for (const KerasTensor& input : model.inputs().flat()) {
      in.push_back({input.node()->layer.name(), input.spec().leaf()});
    }
  } else {
    in.push_back(input_of(model));
  }
  for (Value& value : in) {
    value.name = g.fresh(value.name);
    g.add_input(value.name, value.spec);
  }
  const std::size_t count = is_drawing ? model.outputs().flat().size() : 1;
  Names names = names_of_outputs(model, count);
  for (std::string& name : names) name = g.fresh(name);
  const Values out = exporter.convert(model, in);
  for (std::size_t i = 0; i < out.size(); ++i) {
    g.rename(out[i].name, names[i]);
    g.add_output(names[i], out[i].spec);
  }
  return g.finish(model.name());
}

}  // namespace cohort::keras::internal::onnx
