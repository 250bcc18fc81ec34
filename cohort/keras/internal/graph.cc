// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/internal/graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cohort/base/check.h"
#include "cohort/keras/internal/layer_call.h"
#include "cohort/keras/internal/operation.h"
#include "cohort/keras/internal/rectified_call.h"
#include "cohort/keras/internal/shape_of_training.h"

namespace cohort::keras::internal {
namespace {

thread_local const std::vector<const LayerBase*>* t_order = nullptr;

bool is_input(const CallNode& node) { return !node.inputs.has_value(); }

std::vector<std::string> output_names_of(const std::vector<KerasTensor>& tensors) {
  std::vector<std::string> names;
  for (const KerasTensor& x : tensors) names.push_back(x.node()->layer.name());
  return names;
}

bool fits_promise(const Shape& promised, const Element& x) {
  if (!x.is_tensor()) return true;
  const Tensor& t = x.tensor();
  return t.defined() &&
         std::equal(promised.begin(), promised.end(), t.sizes().begin(), t.sizes().end(),
                    [](int64_t p, int64_t size) { return p == kUnknownDim || p == size; });
}

void flatten(const Element& x, int& slot, int end, std::vector<Element>& slots) {
  if (x.is_tuple() && !x.is_ragged()) {
    for (std::size_t i = 0; i < x.size(); ++i) flatten(x[i], slot, end, slots);
    return;
  }
  if (slot < end) slots[static_cast<std::size_t>(slot)] = x;
  ++slot;
}

// As the Input says: [b] for [None, 1], and the other way round; numbers in its type.
Element adjusted(const Element& x, const KerasTensor& input) {
  const auto rank_wanted = input.shape().size();
  if (x.is_string()) {
    const Shape shape = x.spec().leaf().shape;
    const bool lacks_axis = shape.size() == 1 && rank_wanted == 2 && input.shape()[1] == 1;
    return lacks_axis ? Element(x.strings(), {shape[0], 1}) : x;
  }
  if (!x.is_tensor()) return x;
  Tensor t = x.tensor();
  const Shape& shape = input.shape();
  const auto rank = static_cast<int64_t>(shape.size());
  if (t.dim() == rank + 1 && t.size(-1) == 1) t = t.squeeze(-1);
  if (t.dim() == rank - 1 && shape.back() == 1) t = t.unsqueeze(-1);
  const DType dtype = input.dtype();
  if (dtype != DType::Undefined && t.scalar_type() != dtype) t = t.to(dtype);
  const bool same = t.is_same(x.tensor());
  if (const Tensor mask = same ? Tensor() : mask_of(x.tensor()); mask.defined()) set_mask(t, mask);
  return same ? x : Element(t);
}

}  // namespace

LayerOrder::LayerOrder(const std::vector<const LayerBase*>& order) { t_order = &order; }
LayerOrder::~LayerOrder() { t_order = nullptr; }

// Keras's traversal: layers by their first visit, nodes behind what they need.
struct Graph::Search {
  std::map<const LayerBase*, int> visits;
  std::map<const CallNode*, int> depths;
  std::map<const LayerBase*, int> layer_depths;
  std::set<const CallNode*> seen;
  std::vector<Node> nodes;

  void visit(const KerasTensor& tensor) {
    const Node& node = tensor.node();
    if (!seen.insert(node.get()).second) return;
    visits.emplace(&node->layer.base(), static_cast<int>(visits.size()));
    for (const KerasTensor& need : node->needs()) visit(need);
    nodes.push_back(node);
  }
  void find_depths() {
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      int& of_layer = layer_depths[&(*node)->layer.base()];
      const int depth = std::max(depths[node->get()], of_layer);
      of_layer = depths[node->get()] = depth;
      for (const KerasTensor& need : (*node)->needs()) {
        int& of_need = depths[need.node().get()];
        of_need = std::max(of_need, depth + 1);
      }
    }
  }
};

Graph::Graph(KerasTensor inputs, KerasTensor outputs)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), flat_inputs_(inputs_.flat()) {
  COHORT_CHECK_ARG(!flat_inputs_.empty() && !outputs_.flat().empty(),
                   "[model] expected inputs and outputs, got ",
                   flat_inputs_.empty() ? "no inputs" : "no outputs");
  Search search;
  for (const KerasTensor& output : outputs_.flat()) search.visit(output);
  nodes_ = search.nodes;
  check_connected();
  search.find_depths();
  for (const KerasTensor& input : flat_inputs_) {
    LayerBase* layer = &input.node()->layer.base();
    if (!search.visits.emplace(layer, -1).second) continue;
    nodes_.push_back(input.node());
    search.nodes.push_back(input.node());
    search.layer_depths[layer] = 0;
  }
  sort_layers(search);
  make_steps();
}

void Graph::check_connected() const {
  for (const KerasTensor& input : flat_inputs_) {
    COHORT_CHECK_ARG(is_input(*input.node()),
                     "[model] expected inputs that keras::Input made, got an output of layer \"",
                     input.node()->layer.name(), "\"");
  }
  for (const Node& node : nodes_) {
    const bool given = std::ranges::any_of(
        flat_inputs_, [&](const KerasTensor& input) { return input.node() == node; });
    COHORT_CHECK_ARG(given || !is_input(*node),
                     "[model] expected outputs that the inputs lead to, got one that needs \"",
                     node->layer.name(), "\", which is not among the inputs");
  }
}

namespace {
// Keras refuses them, too. The positions are those of summary().
void check_names(const std::vector<const LayerBase*>& layers) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t first = places.emplace(layers[i]->name(), i).first->second;
    COHORT_CHECK_ARG(first == i, "[model] expected layers of unique names, got \"",
                     layers[i]->name(), "\" at position ", first, ", ", layers[first]->class_name(),
                     ", and at position ", i, ", ", layers[i]->class_name(),
                     ": give one of them another name");
  }
}
}  // namespace

void Graph::sort_layers(const Search& search) {
  std::map<const LayerBase*, Layer> all;
  for (const Node& node : search.nodes) all.emplace(&node->layer.base(), node->layer);
  std::vector<const LayerBase*> order;
  for (const auto& [layer, handle] : all) order.push_back(layer);
  std::ranges::sort(order, [&](const LayerBase* a, const LayerBase* b) {
    const int depth_a = search.layer_depths.at(a), depth_b = search.layer_depths.at(b);
    if (depth_a != depth_b) return depth_a > depth_b;
    return search.visits.at(a) < search.visits.at(b);
  });
  if (t_order != nullptr) {
    const auto place = [](const LayerBase* layer) { return std::ranges::find(*t_order, layer); };
    std::ranges::stable_sort(order, {}, place);
  }
  check_names(order);
  for (const LayerBase* layer : order) {
    operations_.push_back(all.at(layer));
    if (dynamic_cast<const Operation*>(layer) == nullptr) layers_.push_back(all.at(layer));
  }
}

void Graph::make_steps() {
  std::map<int, std::size_t> last_use;
  const auto note = [&](auto&& self, const Nest& nest, std::size_t step) -> void {
    if (nest.slot >= 0) last_use[nest.slot] = step;
    for (const Nest& part : nest.parts) self(self, part, step);
  };
  for (const Node& node : nodes_) {
    first_slots_.emplace_back(node.get(), slots_);
    if (!is_input(*node)) {
      steps_.push_back({.node = node,
                        .inputs = nest_of(node->inputs),
                        .mask = nest_of(node->args.mask),
                        .initial_state = nest_of(node->args.initial_state),
                        .attention_mask = nest_of(node->args.attention_mask),
                        .first = slots_,
                        .after = {},
                        .is_rectified = false,
                        .passes = false});
      for (const Nest* nest : {&steps_.back().inputs, &steps_.back().mask,
                               &steps_.back().initial_state, &steps_.back().attention_mask}) {
        note(note, *nest, steps_.size() - 1);
      }
    }
    slots_ += static_cast<int>(std::max<std::size_t>(1, node->outputs.flat().size()));
  }
  output_slots_ = nest_of(outputs_);
  note(note, output_slots_, steps_.size());
  for (const auto& [slot, step] : last_use) {
    if (step < steps_.size()) steps_[step].after.push_back(slot);
  }
  join_steps();
}

// A layer that can do what the only one behind it does.
void Graph::join_steps() {
  std::map<int, int> uses;
  const auto count = [&](auto&& self, const Nest& nest) -> void {
    if (nest.slot >= 0) ++uses[nest.slot];
    for (const Nest& part : nest.parts) self(self, part);
  };
  count(count, output_slots_);
  for (const Step& step : steps_) {
    for (const Nest* nest : {&step.inputs, &step.mask, &step.initial_state, &step.attention_mask}) {
      count(count, *nest);
    }
  }
  for (Step& next : steps_) {
    const int slot = next.inputs.slot;
    const auto step = std::ranges::find(steps_, slot, &Step::first);
    if (slot < 0 || step == steps_.end() || uses[slot] != 1) continue;
    if (!can_join(step->node->layer.base(), next.node->layer.base())) continue;
    step->is_rectified = next.passes = true;
  }
}

Graph::Nest Graph::nest_of(const KerasTensor& x) const {
  Nest nest;
  if (!x.has_value()) return nest;
  if (x.is_tuple()) {
    nest.is_tuple = true;
    nest.names = x.names();
    for (std::size_t i = 0; i < x.size(); ++i) nest.parts.push_back(nest_of(x[i]));
    return nest;
  }
  const auto known =
      std::ranges::find(first_slots_, x.node().get(), &std::pair<const CallNode*, int>::first);
  nest.slot = known->second + x.output();
  return nest;
}

Element Graph::gather(const Nest& nest, const std::vector<Element>& slots) {
  if (!nest.is_tuple) {
    return nest.slot < 0 ? Element() : slots[static_cast<std::size_t>(nest.slot)];
  }
  if (nest.names.empty()) {
    std::vector<Element> parts;
    for (const Nest& part : nest.parts) parts.push_back(gather(part, slots));
    return Element::tuple(std::move(parts));
  }
  std::vector<std::pair<std::string, Element>> named;
  for (std::size_t i = 0; i < nest.parts.size(); ++i) {
    named.emplace_back(nest.names[i], gather(nest.parts[i], slots));
  }
  return Element::named(std::move(named));
}

// By the names of the nest or of the Inputs, or by their order.
Element Graph::part_for_input(const Element& inputs, std::size_t i) const {
  const std::vector<std::string>& names = inputs.names();
  const std::string& input = flat_inputs_[i].node()->layer.name();
  const auto has = [&](const std::string& name) { return std::ranges::count(names, name) > 0; };
  if (inputs_.is_tuple() && inputs_.names().size() == flat_inputs_.size() &&
      has(inputs_.names()[i])) {
    return inputs[inputs_.names()[i]];
  }
  if (has(input)) return inputs[input];
  const bool fits =
      flat_inputs_.size() == 1 ? inputs.size() == 1 : inputs.size() == flat_inputs_.size();
  COHORT_CHECK_ARG(fits && (names.empty() || inputs.is_ragged()), "[model] expected inputs like ",
                   inputs_.spec().to_string(), " of ", join(output_names_of(flat_inputs_), ", "),
                   ", got ", inputs.spec().to_string());
  if (flat_inputs_.size() == 1)
    return inputs.is_tuple() && !inputs.is_ragged() ? inputs[0] : inputs;
  return inputs[i];
}

void Graph::put_inputs(const Element& inputs, const CallArgs& args,
                       std::vector<Element>& slots) const {
  for (std::size_t i = 0; i < flat_inputs_.size(); ++i) {
    const KerasTensor& input = flat_inputs_[i];
    const Element given = adjusted(part_for_input(inputs, i), input);
    CallArgs own;
    if (args.mask.has_value() && i < args.mask.size()) own.mask = args.mask[i];
    const auto slot = static_cast<std::size_t>(nest_of(input).slot);
    const Layer& layer = input.node()->layer;
    slots[slot] = given.is_tensor() ? Element(layer(given.tensor(), own)) : given;
  }
}

void Graph::run_step(const Step& step, bool training, std::vector<Element>& slots) {
  const auto first = static_cast<std::size_t>(step.first);
  const Element* one =
      step.inputs.slot >= 0 ? &slots[static_cast<std::size_t>(step.inputs.slot)] : nullptr;
  if (step.passes) {
    slots[first] = *one;
    return;
  }
  const CallNode& node = *step.node;
  CallArgs args{.training = node.args.training.value_or(training)};
  args.use_causal_mask = node.args.use_causal_mask;
  if (step.attention_mask.slot >= 0) args.attention_mask = gather(step.attention_mask, slots);
  if (step.mask.slot >= 0 || step.mask.is_tuple) args.mask = gather(step.mask, slots);
  if (step.initial_state.slot >= 0 || step.initial_state.is_tuple) {
    args.initial_state = gather(step.initial_state, slots);
  }
  std::optional<RectifiedCall> rectified;
  if (step.is_rectified) rectified.emplace(node.layer.base());
  const bool one_out = node.outputs.is_leaf();
  if (one_out && one != nullptr && one->is_tensor()) {
    slots[first] = node.layer(one->tensor(), args);
    return;
  }
  const Element out = node.layer(gather(step.inputs, slots), args);
  int slot = step.first;
  const int end = step.first + static_cast<int>(node.outputs.flat().size());
  flatten(out, slot, end, slots);
  COHORT_CHECK_ARG(slot == end, "[", node.layer.name(), "] expected outputs ",
                   node.outputs.to_string(), ", as compute_output_spec promises, got ",
                   out.spec().to_string());
}

bool has_shape_of_training(const LayerBase& layer) {
  return dynamic_cast<const ShapeOfTraining*>(&layer) != nullptr ||
         std::ranges::any_of(layer.sub_layers(), [](const Layer& inner) {
           return has_shape_of_training(inner.base());
         });
}

// What a layer promises wrongly, layers after it were built for: the first call says who it was.
bool Graph::check_promises(const Step& step, bool training, const std::vector<Element>& slots) {
  const std::vector<TensorSpec> promised = step.node->outputs.flat();
  for (std::size_t i = 0; i < promised.size(); ++i) {
    const Element& x = slots[static_cast<std::size_t>(step.first) + i];
    if (!promised[i].known_rank || fits_promise(promised[i].shape, x)) continue;
    const LayerBase& layer = step.node->layer.base();
    if (!training && has_shape_of_training(layer)) return false;
    throw InvalidArgument(str_cat("[", layer.name(), "] expected outputs of shape ",
                                  none_shape(promised[i].shape), ", as ", layer.class_name(),
                                  ".compute_output_shape promises, got ", x.spec().to_string(),
                                  "; override compute_output_shape to return what call gives"));
  }
  return true;
}

Element Graph::run(const Element& inputs, const CallArgs& args) const {
  std::vector<Element> slots(static_cast<std::size_t>(slots_));
  put_inputs(inputs, args, slots);
  bool check = !shapes_hold_.load(std::memory_order_relaxed);
  for (const Step& step : steps_) {
    run_step(step, args.training, slots);
    if (check) [[unlikely]]
      check = check_promises(step, step.node->args.training.value_or(args.training), slots);
    for (const int slot : step.after) slots[static_cast<std::size_t>(slot)] = Element();
  }
  if (check) shapes_hold_.store(true, std::memory_order_relaxed);
  return gather(output_slots_, slots);
}

namespace {
// What is said of the inputs and, where that is nothing, by the Input.
TensorSpec refined(const TensorSpec& given, const KerasTensor& input) {
  TensorSpec out = input.spec().leaf();
  if (!given.known_rank || given.shape.size() != out.shape.size()) return out;
  for (std::size_t i = 0; i < out.shape.size(); ++i) {
    if (out.shape[i] == kUnknownDim) out.shape[i] = given.shape[i];
  }
  return out;
}
}  // namespace

ElementSpec Graph::gather_specs(const Nest& nest, const std::vector<TensorSpec>& slots) {
  if (!nest.is_tuple) {
    return nest.slot < 0 ? ElementSpec() : ElementSpec(slots[static_cast<std::size_t>(nest.slot)]);
  }
  std::vector<ElementSpec> parts;
  std::vector<std::pair<std::string, ElementSpec>> named;
  for (std::size_t i = 0; i < nest.parts.size(); ++i) {
    parts.push_back(gather_specs(nest.parts[i], slots));
    if (!nest.names.empty()) named.emplace_back(nest.names[i], parts.back());
  }
  return named.empty() ? ElementSpec::tuple(std::move(parts))
                       : ElementSpec::named(std::move(named));
}

ElementSpec Graph::output_spec(const ElementSpec& inputs) const {
  const std::vector<TensorSpec> given = inputs.flat();
  if (given.size() != flat_inputs_.size() || !inputs.names().empty()) return outputs_.spec();
  std::vector<TensorSpec> slots(static_cast<std::size_t>(slots_));
  bool says_more = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    TensorSpec& spec = slots[static_cast<std::size_t>(nest_of(flat_inputs_[i]).slot)];
    spec = refined(given[i], flat_inputs_[i]);
    says_more = says_more || spec.shape != flat_inputs_[i].shape();
  }
  if (!says_more) return outputs_.spec();
  for (const Step& step : steps_) {
    const std::vector<TensorSpec> drawn = step.node->outputs.flat();
    std::vector<TensorSpec> now =
        step.node->layer.base().compute_output_spec(gather_specs(step.inputs, slots)).flat();
    if (now.size() != drawn.size()) now = drawn;
    std::ranges::move(now, slots.begin() + step.first);
  }
  return gather_specs(output_slots_, slots);
}

std::vector<Shape> Graph::layer_shapes() const {
  std::vector<Shape> shapes;
  for (const Layer& layer : layers_) {
    const auto call = std::ranges::find_if(
        nodes_, [&](const Node& node) { return &node->layer.base() == &layer.base(); });
    const std::vector<TensorSpec> outputs = (*call)->outputs.flat();
    shapes.push_back(outputs.empty() ? Shape() : outputs[0].shape);
  }
  return shapes;
}

std::vector<std::string> Graph::output_names() const {
  const std::vector<KerasTensor> flat = outputs_.flat();
  if (outputs_.names().size() == flat.size()) return outputs_.names();
  return output_names_of(flat);
}

}  // namespace cohort::keras::internal
