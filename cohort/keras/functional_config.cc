// SPDX-License-Identifier: Apache-2.0
//
// Functional models as configs, in Keras's form, and back.
#include <algorithm>
#include <map>

#include "cohort/base/check.h"
#include "cohort/keras/internal/graph.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/operation.h"
#include "cohort/keras/layers/core.h"
#include "cohort/keras/layers/embedding.h"
#include "cohort/keras/layers/text_input_layer.h"
#include "cohort/keras/model.h"

namespace cohort::keras::internal {
namespace {

// Among a model's inputs and outputs, calls of a model that is a layer count from 1 on: it begins
// with a node of its own.
int first_index(const LayerBase& layer) {
  const auto* model = dynamic_cast<const Model*>(&layer);
  return model != nullptr && model->is_functional() ? 1 : 0;
}

struct FunctionalFields {
  std::string name = {};
  bool trainable = true;
  Config layers = {}, input_layers = {}, output_layers = {};
};

FunctionalFields fields_of(const Config& config) {
  FunctionalFields fields;
  for (const auto& [name, value] : config.members()) {
    if (name == "name") {
      fields.name = value.text();
    } else if (name == "trainable") {
      fields.trainable = value.boolean();
    } else if (name == "layers") {
      fields.layers = value;
    } else if (name == "input_layers") {
      fields.input_layers = value;
    } else if (name == "output_layers") {
      fields.output_layers = value;
    } else {
      COHORT_CHECK_ARG(name == "dtype" || value.is_null(), "[Functional] expected no member \"",
                       name, "\" in the config");
    }
  }
  return fields;
}

constexpr int64_t kMostCalls = 5'000;

// Beside a call whose `training` is not the model's. Keras writes one of every call, and heeds
// none.
constexpr const char* kFixedTraining = "fixed_training";

bool is_tensor(const Config& config) {
  const Config* name = config.find("class_name");
  return name != nullptr && name->is_text() && name->text() == "__keras_tensor__";
}
const Config& history(const Config& tensor) { return tensor.at("config").at("keras_history"); }

// Keras writes the masks that layers hand on as operations, and what they give as arguments of
// calls. Here tensors carry masks: an argument that says what they carry anyway says nothing. Masks
// are compared by the formulas that they come from.
class CarriedMasks {
 public:
  /// Whether an entry of the config is such an operation.
  bool take(const Config& entry) {
    const Config *module = entry.find("module"), *kind = entry.find("class_name"),
                 *nodes = entry.find("inbound_nodes");
    const bool is_one =
        module != nullptr && module->is_text() && kind != nullptr && kind->is_text() &&
        module->text().starts_with("keras.src.ops.") &&
        (kind->text() == "NotEqual" || kind->text() == "Any" || kind->text() == "LogicalOr") &&
        nodes != nullptr && nodes->is_list() && nodes->list().size() == 1;
    if (is_one) operations_[entry.text("name")] = {kind->text(), nodes->list()[0].at("args")};
    return is_one;
  }
  bool makes(const Config& tensor) const { return operations_.contains(layer_of(tensor)); }
  /// Whether the mask that a call is given is the one that its first input carries.
  /// Errors: Unimplemented for another one.
  bool carries(const Config& node, const Config& mask) const {
    if (!is_tensor(mask) || !makes(mask)) return false;
    const std::string formula = formula_of(mask, 0);
    if (!formula.empty() && formula == carried_by(first_input(node))) return true;
    throw Unimplemented(str_cat("[Functional] expected masks that layers hand on, got one that \"",
                                layer_of(mask), "\" computes"));
  }
  /// Notes what the output of a call carries.
  void carry(const std::string& layer, int call, const Config& node, const LayerBase& base,
             const KerasTensor& output) {
    const Config input = first_input(node);
    if (!is_tensor(input) || output.is_tuple() || !base.supports_masking()) return;
    std::string mask;
    if (dynamic_cast<const EmbeddingLayer*>(&base) != nullptr) {
      mask = not_equal(input, 0);
    } else if (const auto* masking = dynamic_cast<const MaskingLayer*>(&base)) {
      mask = str_cat("any ", not_equal(input, masking->config().mask_value));
    } else if (output.shape().size() >= input.at("config").at("shape").list().size()) {
      mask = carried_by(input);                         // of a sequence that stays one
      const bool joins = !base.inputs_are_arguments();  // else the first one's is handed on
      for (const Config& other : joins ? all_inputs(node) : std::vector<Config>()) {
        mask = mask.empty() ? mask : either(mask, carried_by(other));
      }
    }
    if (!mask.empty()) carried_[Config(Config::List{layer, call, 0}).to_json()] = mask;
  }

 private:
  struct Operation {
    std::string kind;
    Config args;
  };
  static constexpr int kDeepestFormula = 100;

  static std::string layer_of(const Config& tensor) {
    const Config& place = history(tensor);
    return place.is_list() && !place.list().empty() && place.list()[0].is_text()
               ? place.list()[0].text()
               : std::string();
  }
  static Config first_input(const Config& node) {
    const std::vector<Config> all = all_inputs(node);
    return all.empty() ? Config() : all[0];
  }
  static std::vector<Config> all_inputs(const Config& node) {
    const Config* args = node.find("args");
    if (args == nullptr || !args->is_list() || args->list().empty()) return {};
    const Config& first = args->list()[0];
    return first.is_list() ? first.list() : args->list();
  }
  static std::string not_equal(const Config& tensor, double number) {
    return str_cat("not_equal ", history(tensor).to_json(), " ", number);
  }
  static std::string either(const std::string& a, const std::string& b) {
    if (a.empty() || b.empty()) return {};
    return a == b ? a : str_cat("(", a, ") or (", b, ")");
  }
  std::string carried_by(const Config& tensor) const {
    if (!is_tensor(tensor)) return {};
    const auto known = carried_.find(history(tensor).to_json());
    return known == carried_.end() ? std::string() : known->second;
  }
  std::string formula_of(const Config& tensor, int depth) const {
    if (!is_tensor(tensor) || depth > kDeepestFormula) return {};
    const auto known = operations_.find(layer_of(tensor));
    if (known == operations_.end()) return {};
    const auto& [kind, args] = known->second;
    if (!args.is_list() || args.list().empty()) return {};
    const Config::List& list = args.list();
    if (kind == "NotEqual") {
      const bool fits = list.size() == 2 && is_tensor(list[0]) && list[1].is_number();
      return fits ? not_equal(list[0], list[1].number()) : std::string();
    }
    const std::string first = formula_of(list[0], depth + 1);
    if (kind == "Any") return first.empty() ? first : "any " + first;
    return list.size() == 2 ? either(first, formula_of(list[1], depth + 1)) : std::string();
  }

  std::map<std::string, Operation> operations_;
  std::map<std::string, std::string> carried_;  // by place
};

// Draws the calls of a config again.
class Redrawing {
 public:
  explicit Redrawing(const Config& layers) {
    for (const Config& entry : layers.list()) {
      if (masks_.take(entry)) continue;
      const std::shared_ptr<Operation> operation = operation_of(entry);
      const Layer layer = operation ? Layer(operation) : Layer::deserialize(entry);
      order_.push_back(&layer.base());
      const std::string name = entry.contains("name") ? entry.text("name") : layer.name();
      COHORT_CHECK_ARG(calls_.emplace(name, std::vector<KerasTensor>{}).second,
                       "[Functional] expected layers of unique names, got \"", name, "\" twice");
      const Config* nodes = entry.find("inbound_nodes");
      const bool none = nodes == nullptr || nodes->list().empty();
      if (const auto* input = dynamic_cast<const DeclaredInput*>(&layer.base()); none && input) {
        calls_[name].push_back(input_of(layer, *input));
      }
      for (int i = 0; !none && i < static_cast<int>(nodes->list().size()); ++i) {
        COHORT_CHECK_ARG(nodes->list()[static_cast<std::size_t>(i)].is_object(),
                         "[Functional] expected nodes of Keras 3, with args and kwargs, got ",
                         nodes->list()[static_cast<std::size_t>(i)]);
        waiting_.push_back({layer, name, nodes->list()[static_cast<std::size_t>(i)], i});
        // Each may stand on another, and is visited and ended from there.
        COHORT_CHECK_ARG(std::ssize(waiting_) <= kMostCalls, "[Functional] expected at most ",
                         kMostCalls, " calls of layers in a model");
      }
    }
    draw_all();
  }

  /// That of the config, where operations have had a part in what comes first.
  const std::vector<const LayerBase*>& order() const { return order_; }

  KerasTensor nest(const Config& place) const {
    if (place.is_object()) {
      std::vector<std::pair<std::string, KerasTensor>> named;
      for (const auto& [name, part] : place.members()) named.emplace_back(name, nest(part));
      return KerasTensor::named(std::move(named));
    }
    const Config::List& list = place.list();
    if (!list.empty() && list[0].is_text()) {
      const auto of_model = first_.find(list[0].text());
      return at(place, of_model == first_.end() ? 0 : of_model->second);
    }
    if (list.size() == 1) return nest(list[0]);
    std::vector<KerasTensor> parts;
    for (const Config& part : list) parts.push_back(nest(part));
    return KerasTensor::tuple(std::move(parts));
  }

 private:
  struct Call {
    Layer layer;
    std::string name;
    Config node;
    int index;
  };

  static KerasTensor input_of(const Layer& layer, const DeclaredInput& input) {
    const Shape& shape = input.config().batch_shape;
    const bool texts = dynamic_cast<const DeclaredTextInput*>(&input) != nullptr;
    const TensorSpec spec =
        texts ? TensorSpec::strings(shape) : TensorSpec{shape, input.config().dtype};
    const auto node = std::make_shared<const CallNode>(CallNode{layer, {}, {}, spec, 0});
    int first = 0;
    return KerasTensor::of_node(node, spec, first);
  }

  // In rounds: the list of layers need not be in the order of the calls.
  void draw_all() {
    while (!waiting_.empty()) {
      std::vector<Call> later;
      for (Call& call : waiting_) {
        const bool in_turn = static_cast<int>(calls_[call.name].size()) == call.index;
        if (in_turn && has_all(call.node)) {
          draw(call);
        } else {
          later.push_back(std::move(call));
        }
      }
      COHORT_CHECK_ARG(later.size() < waiting_.size(),
                       "[Functional] expected calls of layers that come before, got one of \"",
                       later.front().name, "\" that needs what no layer of the config gives");
      waiting_ = std::move(later);
    }
  }

  bool has_all(const Config& config) const {
    if (is_tensor(config)) return masks_.makes(config) || has(history(config));
    if (config.is_list())
      return std::ranges::all_of(config.list(), [&](auto& c) { return has_all(c); });
    if (!config.is_object()) return true;
    return std::ranges::all_of(config.members(), [&](auto& m) { return has_all(m.second); });
  }
  const std::vector<KerasTensor>& calls_of(const Config& place, int& index) const {
    COHORT_CHECK_ARG(place.list().size() >= 3,
                     "[Functional] expected a layer, the number of its call and of the output, "
                     "got ",
                     place);
    const auto calls = calls_.find(place.list().at(0).text());
    COHORT_CHECK_ARG(calls != calls_.end(), "[Functional] expected a layer of the config, got \"",
                     place.list().at(0).text(), "\"");
    index = static_cast<int>(std::clamp<int64_t>(place.list().at(1).integer(), -1, kMostCalls));
    return calls->second;
  }
  bool has(const Config& place) const {
    int i = 0;
    const auto& calls = calls_of(place, i);
    return i >= 0 && i < static_cast<int>(calls.size());
  }
  KerasTensor at(const Config& place, int first) const {
    int i = 0;
    const auto& calls = calls_of(place, i);
    i -= first;
    const auto output = static_cast<std::size_t>(place.list().at(2).integer());
    const bool there = i >= 0 && i < static_cast<int>(calls.size());
    COHORT_CHECK_ARG(there, "[Functional] expected a call of the config, got ", place);
    const std::vector<KerasTensor> flat = calls[static_cast<std::size_t>(i)].flat();
    COHORT_CHECK_ARG(output < flat.size(), "[Functional] expected an output of the call, got ",
                     place);
    return flat[output];
  }

  KerasTensor value(const Config& config) const {
    if (is_tensor(config)) return at(history(config), 0);
    if (config.is_list()) {
      std::vector<KerasTensor> parts;
      for (const Config& part : config.list()) parts.push_back(value(part));
      return KerasTensor::tuple(std::move(parts));
    }
    if (config.is_null()) return {};
    if (!config.is_object()) {
      throw Unimplemented(
          str_cat("[Functional] expected tensors as arguments of layers, got ", config));
    }
    std::vector<std::pair<std::string, KerasTensor>> named;
    for (const auto& [name, part] : config.members()) named.emplace_back(name, value(part));
    return KerasTensor::named(std::move(named));
  }

  void draw(const Call& call) {
    const bool is_operation = dynamic_cast<const Operation*>(&call.layer.base()) != nullptr;
    std::vector<KerasTensor> inputs;
    if (const Config* args = call.node.find("args"); args != nullptr) {
      for (const Config& arg : args->list()) {
        if (!is_operation || is_tensor(arg)) inputs.push_back(value(arg));
        if (!is_operation || !arg.is_list()) continue;
        for (const Config& part : arg.list()) {
          if (is_tensor(part)) inputs.push_back(value(part));
        }
      }
    }
    DrawnArgs told;
    std::multimap<int, KerasTensor> named;  // by place
    if (const Config* kwargs = call.node.find("kwargs"); kwargs != nullptr) {
      for (const auto& [name, given] : kwargs->members()) read(call, name, given, told, named);
    }
    for (auto& [place, input] : named) inputs.push_back(std::move(input));
    const KerasTensor all = inputs.size() == 1 ? inputs[0] : KerasTensor::tuple(std::move(inputs));
    first_.emplace(call.name, first_index(call.layer.base()));
    calls_[call.name].push_back(draw_call(call.layer, all, std::move(told)));
    if (is_operation) return;  // masks end there
    masks_.carry(call.name, call.index, call.node, call.layer.base(), calls_[call.name].back());
  }

  void read(const Call& call, const std::string& name, const Config& given, DrawnArgs& told,
            std::multimap<int, KerasTensor>& inputs) const {
    if (given.is_null()) return;
    if (name == "training") {
      // What Keras writes of each call, its fit, evaluate and predict say anew.
      if (call.node.contains(kFixedTraining)) told.training = given.boolean();
    } else if (name == "mask") {
      if (!masks_.carries(call.node, given)) told.mask = value(given);
    } else if (name == "initial_state") {
      told.initial_state = value(given);
    } else if (name == "use_causal_mask") {
      told.use_causal_mask = given.boolean();
    } else if (name == "attention_mask") {
      told.attention_mask = value(given);
    } else if (has_tensor(given) && !name.ends_with("mask")) {
      // call(query, key=k, value=v) names them in any order.
      const int place = name == "query" ? 0 : name == "value" ? 1 : name == "key" ? 2 : 3;
      inputs.emplace(place, value(given));
    } else {
      const bool is_default = given.is_bool() && !given.boolean();
      if (is_default) return;
      throw Unimplemented(
          str_cat("[Functional] expected calls with training, mask, initial_state, "
                  "attention_mask and use_causal_mask, got ",
                  name, " = ", given, " in a call of \"", call.name, "\""));
    }
  }
  static bool has_tensor(const Config& config) {
    if (is_tensor(config)) return true;
    return config.is_list() && std::ranges::any_of(config.list(), has_tensor);
  }

  CarriedMasks masks_;
  std::vector<const LayerBase*> order_;
  std::map<std::string, std::vector<KerasTensor>> calls_;
  std::map<std::string, int> first_;
  std::vector<Call> waiting_;
};

}  // namespace

int Graph::index_of(const CallNode& node) const {
  int index = 0;
  for (const Node& other : nodes_) {
    const bool before = &other->layer.base() == &node.layer.base() && other->number < node.number;
    index += before ? 1 : 0;
  }
  return index;
}

Config Graph::tensor_config(const KerasTensor& x) const {
  Config::List history = {x.node()->layer.name(), index_of(*x.node()), x.output()};
  Config config = Config::object();
  config.set("shape", ShapeValue::write(x.shape()));
  config.set("dtype", x.spec().leaf().is_string ? "string" : dtype_name(x.dtype()));
  config.set("keras_history", std::move(history));
  return Config::object({{"class_name", "__keras_tensor__"}, {"config", std::move(config)}});
}

Config Graph::nest_config(const KerasTensor& x) const {
  if (!x.is_tuple()) return tensor_config(x);
  Config::List list;
  for (std::size_t i = 0; i < x.size(); ++i) list.push_back(nest_config(x[i]));
  if (x.names().empty()) return list;
  Config named = Config::object();
  for (std::size_t i = 0; i < list.size(); ++i) named.set(x.names()[i], list[i]);
  return named;
}

Config Graph::node_config(const CallNode& node) const {
  Config args = nest_config(node.inputs);
  if (const auto* op = dynamic_cast<const Operation*>(&node.layer.base()); op != nullptr) {
    args = op->arguments_with(args.is_list() ? args.list() : Config::List{args});
  } else if (!node.inputs.is_tuple() || !node.layer.base().inputs_are_arguments()) {
    args = Config(Config::List{args});
  }
  Config kwargs = Config::object();
  Config fixed;
  if (node.args.training) fixed = *node.args.training;
  if (!fixed.is_null()) kwargs.set("training", fixed);
  if (node.args.mask.has_value()) kwargs.set("mask", nest_config(node.args.mask));
  if (node.args.initial_state.has_value()) {
    kwargs.set("initial_state", nest_config(node.args.initial_state));
  }
  if (node.args.attention_mask.has_value()) {
    kwargs.set("attention_mask", nest_config(node.args.attention_mask));
  }
  if (node.args.use_causal_mask) kwargs.set("use_causal_mask", true);
  Config all = Config::object({{"args", std::move(args)}, {"kwargs", std::move(kwargs)}});
  if (!fixed.is_null()) all.set(kFixedTraining, true);
  return all;
}

namespace {
// Layers are built for any batch; Keras's stateful ones ask for the size that the input declares.
Config with_batch(const Config& shapes, const KerasTensor& inputs) {
  if (!shapes.is_list() || shapes.list().empty()) return shapes;
  Config::List list = shapes.list();
  if (!inputs.is_tuple()) {
    const Shape& declared = inputs.shape();
    if (list[0].is_null() && !declared.empty() && declared[0] != kUnknownDim) list[0] = declared[0];
    return list;
  }
  for (std::size_t i = 0; i < std::min(list.size(), inputs.size()); ++i) {
    list[i] = with_batch(list[i], inputs[i]);
  }
  return list;
}
}  // namespace

Config Graph::layers_config() const {
  Config::List list;
  for (const Layer& layer : operations_) {
    std::vector<const CallNode*> calls;
    for (const Node& node : nodes_) {
      const bool is_call = &node->layer.base() == &layer.base() && node->inputs.has_value();
      if (is_call) calls.push_back(node.get());
    }
    std::ranges::sort(calls, {}, &CallNode::number);
    Config::List nodes;
    for (const CallNode* call : calls) nodes.push_back(node_config(*call));
    Config entry = layer.serialize();
    Config* const build = entry.contains("build_config") ? &entry.at("build_config") : nullptr;
    if (build != nullptr && build->is_object() && build->contains("input_shape") &&
        !calls.empty()) {
      build->set("input_shape", with_batch(build->at("input_shape"), calls[0]->inputs));
    }
    entry.set("name", layer.name());
    entry.set("inbound_nodes", std::move(nodes));
    list.push_back(std::move(entry));
  }
  return list;
}

// Of one tensor a list, too: all versions of Keras 3 read that.
Config Graph::places(const KerasTensor& x) const {
  const auto place = [this](const KerasTensor& one) {
    const int index = first_index(one.node()->layer.base()) + index_of(*one.node());
    return Config(Config::List{one.node()->layer.name(), index, one.output()});
  };
  const auto nest = [&](auto&& self, const KerasTensor& part) -> Config {
    if (!part.is_tuple()) return place(part);
    Config::List list;
    for (std::size_t i = 0; i < part.size(); ++i) list.push_back(self(self, part[i]));
    if (part.names().empty()) return list;
    Config named = Config::object();
    for (std::size_t i = 0; i < list.size(); ++i) named.set(part.names()[i], list[i]);
    return named;
  };
  return x.is_tuple() ? nest(nest, x) : Config(Config::List{place(x)});
}

}  // namespace cohort::keras::internal

namespace cohort::keras {

std::shared_ptr<Model> Model::from_config(const Config& config) {
  const internal::FunctionalFields fields = internal::fields_of(config);
  const internal::Redrawing drawing(fields.layers);
  const internal::LayerOrder order(drawing.order());
  auto model = std::make_shared<Model>(drawing.nest(fields.input_layers),
                                       drawing.nest(fields.output_layers), fields.name);
  if (!fields.trainable) model->set_trainable(false);
  return model;
}

}  // namespace cohort::keras
