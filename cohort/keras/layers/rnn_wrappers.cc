// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/rnn_wrappers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "cohort/base/check.h"

namespace cohort::keras {
namespace {

RecurrentBase& recurrent_of(const Layer& layer) {
  auto* recurrent = dynamic_cast<RecurrentBase*>(&layer.base());
  COHORT_CHECK_ARG(recurrent != nullptr,
                   "[bidirectional] expected a recurrent layer (LSTM, GRU, RNN, ...), got ", layer);
  return *recurrent;
}

// A new layer of the same config, the other way round where that is asked for.
Layer another(const Layer& layer, const std::string& prefix, bool turn) {
  Config whole = layer.serialize();
  whole.set("build_config", nullptr);
  Config config = whole.at("config");
  const std::string& name = config.text("name");
  config.set("name", name.starts_with(prefix) ? name : prefix + name);
  if (turn) config.set("go_backwards", true);
  whole.set("config", std::move(config));
  return Layer::deserialize(whole);
}

void check_pair(const SequenceModes& forward, const SequenceModes& backward) {
  COHORT_CHECK_ARG(forward.go_backwards != backward.go_backwards,
                   "[bidirectional] expected one of the layers to go backwards, got ",
                   forward.go_backwards ? "both" : "none");
  const auto equal = [](const char* what, bool a, bool b) {
    COHORT_CHECK_ARG(a == b, "[bidirectional] expected both layers to have the same ", what,
                     ", got ", a, " and ", b);
  };
  equal("stateful", forward.stateful, backward.stateful);
  equal("return_sequences", forward.return_sequences, backward.return_sequences);
  equal("return_state", forward.return_state, backward.return_state);
}

const std::optional<Layer>& given(const std::optional<Layer>& layer, const char* who) {
  COHORT_CHECK_ARG(layer.has_value(), "[", who, "] expected a layer, got none");
  return layer;
}

}  // namespace

BidirectionalLayer::BidirectionalLayer(BidirectionalConfig config) : LayerImpl(std::move(config)) {
  const BidirectionalConfig& o = this->config();
  const std::string mode = o.merge_mode.value_or("concat");
  const auto modes = {"concat", "sum", "mul", "ave"};
  COHORT_CHECK_ARG(std::ranges::count(modes, mode) == 1,
                   "[bidirectional] expected merge_mode concat, sum, mul, ave or unset, got ",
                   mode);
  const Layer& layer = *given(o.layer, "bidirectional");
  const SequenceModes modes_given = recurrent_of(layer).modes();
  forward_ = another(layer, "forward_", false);
  backward_ = o.backward_layer ? o.backward_layer : another(layer, "backward_", true);
  for (const auto& side : {forward_, backward_}) {
    recurrent_of(*side).set_zero_output_for_mask(modes_given.return_sequences);
  }
  track(*forward_, "forward_layer");
  track(*backward_, "backward_layer");
  check_pair(of(*forward_).modes(), of(*backward_).modes());
}

void BidirectionalLayer::build(const Shape& input_shape) {
  forward_->base().ensure_built(input_shape);
  backward_->base().ensure_built(input_shape);
  const std::vector<Tensor>& weights = config().weights;
  if (weights.empty()) return;
  const auto all = variables();
  COHORT_CHECK_ARG(weights.size() == all.size(), "[", name(), "] expected ", all.size(),
                   " weights, got ", weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) all[i].assign(weights[i]);
}

void BidirectionalLayer::reset_state() const {
  of(*forward_).reset_state();
  of(*backward_).reset_state();
}

Tensor BidirectionalLayer::merged(const Tensor& forward, const Tensor& backward) const {
  const std::string& mode = *config().merge_mode;
  if (mode == "concat") return at::cat({forward, backward}, -1);
  if (mode == "mul") return forward * backward;
  return mode == "sum" ? forward + backward : (forward + backward) / 2;
}

Tensor BidirectionalLayer::call(const Tensor& input, const CallArgs& args) {
  return call_nest(input, args).tensor();
}

Element BidirectionalLayer::call_nest(const Element& inputs, const CallArgs& args) {
  const Element& x = inputs[0];
  std::vector<Element> first, second;
  const auto split = [&](const Element& states, std::size_t from) {
    if (!states.has_value()) return;
    const std::size_t count = states.is_tuple() ? states.size() - from : 0;
    COHORT_CHECK_ARG(count % 2 == 0 && states.is_tuple(), "[", name(),
                     "] expected as many initial states for each direction, got ", count);
    for (std::size_t i = 0; i < count; ++i) {
      (i < count / 2 ? first : second).push_back(states[from + i]);
    }
  };
  split(args.initial_state, 0);
  if (inputs.is_tuple()) split(inputs, 1);
  const auto run = [&](const Layer& layer, std::vector<Element> states) {
    CallArgs own = args;
    own.initial_state = states.empty() ? Element() : Element::tuple(std::move(states));
    return layer(x, own);
  };
  const Element forward = run(*forward_, std::move(first));
  const Element backward = run(*backward_, std::move(second));
  const SequenceModes& modes = of(*forward_).modes();
  Tensor back = backward[0].tensor();
  if (modes.return_sequences) back = back.flip(1);
  std::vector<Element> parts;
  if (config().merge_mode) {
    parts = {merged(forward[0].tensor(), back)};
  } else {
    parts = {forward[0], back};
  }
  for (const Element& side : {forward, backward}) {
    for (std::size_t i = 1; modes.return_state && i < side.size(); ++i) parts.push_back(side[i]);
  }
  return parts.size() == 1 ? parts[0] : Element::tuple(std::move(parts));
}

Shape BidirectionalLayer::compute_output_shape(const Shape& input_shape) const {
  Shape shape = forward_->base().compute_output_shape(input_shape);
  if (config().merge_mode == "concat") shape.back() *= 2;
  return shape;
}

ElementSpec BidirectionalLayer::compute_output_spec(const ElementSpec& inputs) const {
  const TensorSpec input = inputs[0].leaf();
  const ElementSpec side = forward_->base().compute_output_spec(input);
  const TensorSpec output{.shape = compute_output_shape(input.shape),
                          .dtype = dtype_policy().compute_dtype()};
  std::vector<ElementSpec> parts = {output};
  if (!config().merge_mode) parts.push_back(output);
  for (int twice = 0; twice < 2; ++twice) {
    for (std::size_t i = 1; i < side.size(); ++i) parts.push_back(side[i]);
  }
  return parts.size() == 1 ? parts[0] : ElementSpec::tuple(std::move(parts));
}

Element BidirectionalLayer::compute_mask(const Element&, const Element& mask) const {
  const SequenceModes& modes = of(*forward_).modes();
  const std::vector<Tensor> masks = internal::flat_tensors(mask);
  if (masks.empty() || !modes.return_sequences) return {};
  const Element one = masks[0];
  std::vector<Element> all = {one};
  if (!config().merge_mode) all.push_back(one);
  const std::size_t states = modes.return_state ? of(*forward_).cell().state_size().size() : 0;
  all.resize(all.size() + 2 * states);
  return all.size() == 1 ? one : Element::tuple(std::move(all));
}

Config BidirectionalLayer::get_config() const {
  Config config = LayerImpl::get_config();
  config.set("layer", forward_->serialize());
  config.set("backward_layer", backward_->serialize());
  return config;
}

namespace {

// Of Keras's layers those whose rows do not see each other, as far as their options tell.
bool is_of_rows_alone(const Config& layer) {
  static constexpr std::string_view kMixRows[] = {"AugMix",         "CutMix", "Equalization",
                                                  "MelSpectrogram", "MixUp",  "RandAugment"};
  const Config& module = layer.at("module");
  if (!module.is_text() || !module.text().starts_with("keras")) return false;
  if (std::ranges::find(kMixRows, layer.text("class_name")) != std::end(kMixRows)) return false;
  const Config* const options = layer.find("config");
  const auto says = [&](std::string_view name, auto&& what) {
    const Config* const value = options == nullptr ? nullptr : options->find(name);
    return value != nullptr && what(*value);
  };
  const auto is_true = [](const Config& value) { return value.is_bool() && value.boolean(); };
  const auto is_first = [](const Config& value) {
    return value.is_number() && value.number() == 0;
  };
  const auto is_given = [](const Config& value) { return !value.is_null(); };
  return !says("stateful", is_true) && !says("axis", is_first) && !says("noise_shape", is_given);
}

// Whether rows of its input come out as they would alone: of Keras's layers, unless they keep
// statistics of what they have seen.
bool has_rows_alone(const LayerBase& layer) {
  try {
    return is_of_rows_alone(layer.serialize()) && layer.non_trainable_variables().empty() &&
           std::ranges::all_of(layer.sub_layers(),
                               [](const Layer& part) { return has_rows_alone(part.base()); });
  } catch (const Unimplemented&) {
    return false;
  }
}

}  // namespace

TimeDistributedLayer::TimeDistributedLayer(TimeDistributedConfig config)
    : LayerImpl(std::move(config)) {
  track(*given(this->config().layer, "time_distributed"), "layer");
}

void TimeDistributedLayer::build(const Shape& input_shape) {
  COHORT_CHECK_ARG(input_shape.size() >= 3, "[", name(),
                   "] expected sequences [batch, steps, ...], got shape ", bracketed(input_shape));
  Shape step = input_shape;
  step.erase(step.begin() + 1);
  layer().base().ensure_built(step);
  // What is frozen counts as a statistic here, which only costs time.
  at_once_ = has_rows_alone(layer().base());
}

Tensor TimeDistributedLayer::call(const Tensor& input, const CallArgs& args) {
  const int64_t batch = input.size(0), length = input.size(1);
  const std::vector<Tensor> masks = internal::flat_tensors(args.mask);
  const Tensor mask = masks.empty() ? Tensor() : masks[0];
  COHORT_CHECK_ARG(
      !mask.defined() || (mask.dim() >= 2 && mask.size(0) == batch && mask.size(1) == length), "[",
      name(), "] expected a mask of shape ", bracketed(Shape{batch, length}), ", got ",
      bracketed(mask.sizes()));
  CallArgs own{.training = args.training};
  // Behind the steps: of places in a step, or of the rows themselves (BatchNormalization's).
  const bool has_mask = mask.defined() && layer().base().supports_masking() &&
                        (mask.dim() > 2 || (!at_once_ && input.dim() == 3));
  if (at_once_) {
    if (has_mask) own.mask = mask.flatten(0, 1);
    Tensor rows = layer()(input.flatten(0, 1), own);
    Shape shape = shape_of(rows);
    shape[0] = batch;
    shape.insert(shape.begin() + 1, length);
    return rows.reshape(shape);
  }
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < length; ++t) {
    if (has_mask) own.mask = mask.select(1, t);
    outputs.push_back(layer()(input.select(1, t), own));
  }
  COHORT_CHECK_ARG(!outputs.empty(), "[", name(), "] expected at least one step, got shape ",
                   bracketed(input.sizes()));
  return at::stack(outputs, 1);
}

Shape TimeDistributedLayer::compute_output_shape(const Shape& input_shape) const {
  COHORT_CHECK_ARG(input_shape.size() > 1, "[", name(),
                   "] expected inputs [batch, steps, ...], got ", "shape ", bracketed(input_shape));
  Shape step = input_shape;
  step.erase(step.begin() + 1);
  Shape out = layer().base().compute_output_shape(step);
  COHORT_CHECK_ARG(!out.empty(), "[", name(),
                   "] expected outputs of the layer with a batch, got a ", "scalar for shape ",
                   bracketed(step));
  out.insert(out.begin() + 1, input_shape[1]);
  return out;
}

Bidirectional::Bidirectional(Layer layer, BidirectionalOptions options)
    : Layer(std::make_shared<BidirectionalLayer>(
          BidirectionalConfig{std::move(options), std::move(layer)})) {}

TimeDistributed::TimeDistributed(Layer layer, TimeDistributedOptions options)
    : Layer(std::make_shared<TimeDistributedLayer>(
          TimeDistributedConfig{std::move(options), std::move(layer)})) {}

}  // namespace cohort::keras
