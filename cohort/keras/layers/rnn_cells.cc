// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/rnn_cells.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "cohort/base/check.h"
#include "cohort/checkpoint/trackable.h"
#include "cohort/keras/layers/internal/device_recurrent.h"
#include "cohort/keras/layers/internal/draws.h"
#include "cohort/keras/layers/internal/recurrent_nodes.h"

namespace cohort::keras {
namespace internal {

RNNCellBase& cell_of(const Layer& layer, const char* who) {
  auto* cell = dynamic_cast<RNNCellBase*>(&layer.base());
  COHORT_CHECK_ARG(cell != nullptr, "[", who,
                   "] expected a cell (LSTMCell, or a class that derives "
                   "RNNCellBase), got ",
                   layer);
  return *cell;
}

std::vector<Tensor> flat_tensors(const Element& nest) {
  std::vector<Tensor> flat;
  if (!nest.has_value()) return flat;
  if (!nest.is_tuple()) return {nest.tensor()};
  for (std::size_t i = 0; i < nest.size(); ++i) {
    for (Tensor& t : flat_tensors(nest[i])) flat.push_back(std::move(t));
  }
  return flat;
}

namespace {

// [b] as [b, 1, ...], to choose between rows.
Tensor rows_that_count(const Tensor& mask, const Tensor& rows) {
  Shape shape(static_cast<std::size_t>(rows.dim()), 1);
  shape[0] = mask.size(0);
  return mask.view(shape);
}

Tensor chosen(const Tensor& mask, const Tensor& yes, const Tensor& no) {
  return yes.where(rows_that_count(mask, yes), no);
}

}  // namespace

Tensor run_steps(SequenceRun& run, const StepFunction& step) {
  const int64_t length = run.steps.size(0);
  COHORT_CHECK_ARG(length > 0, "[rnn] expected at least one step, got inputs of shape ",
                   bracketed(run.steps.transpose(0, 1).sizes()));
  std::vector<Tensor> outputs;
  Tensor output;
  for (int64_t t = 0; t < length; ++t) {
    std::vector<Tensor> states = run.states;
    Tensor now = step(t, states);
    if (run.mask.defined()) {
      const Tensor mask = run.mask[t];
      const bool has_last = output.defined() && !run.zero_output_for_mask;
      now = chosen(mask, now, has_last ? output : at::zeros_like(now));
      for (std::size_t i = 0; i < states.size(); ++i) {
        states[i] = chosen(mask, states[i], run.states[i]);
      }
    }
    output = now;
    run.states = std::move(states);
    if (run.return_sequences) outputs.push_back(output);
  }
  return run.return_sequences ? at::stack(outputs) : output;
}

GatedCell::GatedCell(std::string name) : RNNCellBase(std::move(name)) {}
GatedCell::~GatedCell() = default;

void GatedCell::check(int64_t units, double dropout, double recurrent_dropout) const {
  // Called while the object is made, when it has no class's name yet.
  COHORT_CHECK_ARG(units > 0, "[recurrent] expected units > 0, got ", units);
  for (const double rate : {dropout, recurrent_dropout}) {
    COHORT_CHECK_ARG(rate >= 0 && rate <= 1,
                     "[recurrent] expected rates of dropout between 0 and 1, got ", rate);
  }
}

void GatedCell::begin_draws(std::optional<uint64_t> seed) {
  masks_ = std::make_unique<Draws>(seed, Draws::Number::kOfTheUnseeded);
}

TrackedParts GatedCell::tracked_parts() const {
  TrackedParts parts = LayerBase::tracked_parts();
  masks_->add_to(parts);
  return parts;
}

// As Keras: where the state is dropped, each gate has masks of its own. At a rate of 1 nothing is.
GatedCell::Masks GatedCell::draw(const Tensor& step, const Tensor& state, const CallArgs& args,
                                 double dropout, double recurrent_dropout, std::size_t gates) {
  Masks masks;
  if (!args.training) return masks;
  const std::size_t count = recurrent_dropout > 0 ? gates : 1;
  const auto draw_all = [&](std::vector<Tensor>& out, double rate, const Tensor& like) {
    if (rate <= 0 || rate >= 1) return;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back(masks_->keep_mask(shape_of(like), rate, like));
    }
  };
  draw_all(masks.input, dropout, step);
  draw_all(masks.recurrent, recurrent_dropout, state);
  return masks;
}

Tensor GatedCell::product(const Tensor& rows, const Tensor& weight,
                          const std::vector<Tensor>& masks) {
  if (masks.empty()) return rows.matmul(weight);
  if (masks.size() == 1) return (rows * masks[0]).matmul(weight);
  const int64_t columns = weight.size(1) / static_cast<int64_t>(masks.size());
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * columns;
    parts.push_back((rows * masks[i]).matmul(weight.narrow(1, first, columns)));
  }
  return at::cat(parts, -1);
}

Tensor GatedCell::input_product(const Tensor& steps, const Tensor& kernel, const Tensor& bias,
                                const std::vector<Tensor>& masks) {
  const Tensor out = product(steps, kernel, masks);
  return bias.defined() ? out + bias : out;
}

Tensor GatedCell::step(const Tensor& input, std::vector<Tensor>& states, const CallArgs& args) {
  SequenceRun one{.steps = input.unsqueeze(0), .states = std::move(states)};
  Tensor output = run(one, args);
  states = std::move(one.states);
  return output;
}

}  // namespace internal

Tensor RNNCellBase::run(SequenceRun& run, const CallArgs& args) {
  return internal::run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
    return step(run.steps[t], states, args);
  });
}

std::vector<Shape> RNNCellBase::state_shapes(const Shape& step) const {
  std::vector<Shape> shapes;
  for (const int64_t size : state_size()) shapes.push_back({step.at(0), size});
  return shapes;
}

Shape RNNCellBase::output_shape(const Shape& step) const {
  COHORT_CHECK_ARG(!step.empty(), "[", name(), "] expected at least 1 axis, got a scalar");
  return {step[0], output_size()};
}

Element RNNCellBase::nest_states(const std::vector<Tensor>& states) const {
  return Element::tuple({states.begin(), states.end()});
}

void RNNCellBase::build_nest(const ElementSpec& inputs) { build(inputs[0].leaf().shape); }

// From nothing, or from args.initial_state.
Tensor RNNCellBase::call(const Tensor& input, const CallArgs& args) {
  return call_nest(input, args)[0].tensor();
}

Element RNNCellBase::call_nest(const Element& inputs, const CallArgs& args) {
  const bool has_states = inputs.is_tuple() && inputs.size() > 1;
  const Tensor x = inputs[0].tensor();
  std::vector<Tensor> states = internal::flat_tensors(has_states ? inputs[1] : args.initial_state);
  const std::vector<Shape> shapes = state_shapes(shape_of(x));
  if (states.empty()) {
    for (const Shape& shape : shapes) states.push_back(at::zeros(shape, x.options()));
  }
  COHORT_CHECK_ARG(states.size() == shapes.size(), "[", name(), "] expected ", shapes.size(),
                   " states, got ", states.size());
  const Tensor output = step(x, states, args);
  return {output, nest_states(states)};
}

Shape RNNCellBase::compute_output_shape(const Shape& input_shape) const {
  return output_shape(input_shape);
}

ElementSpec RNNCellBase::compute_output_spec(const ElementSpec& inputs) const {
  const Shape step = inputs[0].leaf().shape;
  const DType dtype = dtype_policy().compute_dtype();
  std::vector<ElementSpec> states;
  for (const Shape& shape : state_shapes(step)) {
    states.push_back(TensorSpec{.shape = shape, .dtype = dtype});
  }
  return ElementSpec::tuple(
      {TensorSpec{.shape = output_shape(step), .dtype = dtype}, ElementSpec::tuple(states)});
}

namespace {

int64_t features(const Shape& input_shape, const std::string& name) {
  COHORT_CHECK_ARG(input_shape.size() == 2 && input_shape[1] > 0, "[", name,
                   "] expected steps [batch, features], got shape ", bracketed(input_shape));
  return input_shape[1];
}

bool has_tanh_and_sigmoid(const auto& options) {
  return options.activation.name() == "tanh" && options.recurrent_activation.name() == "sigmoid";
}

}  // namespace

void SimpleRNNCellLayer::build(const Shape& input_shape) {
  const int64_t units = config().units;
  make_weights(features(input_shape, name()), units, {units}, config().bias_initializer);
}

Tensor SimpleRNNCellLayer::run(SequenceRun& run, const CallArgs& args) {
  const Masks masks = draw_masks(run, args, 1);
  const Tensor from_input = input_product(run.steps, weight(kernel_), weight(bias_), masks.input);
  const Tensor recurrent = weight(recurrent_kernel_);
  return internal::run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
    const Tensor sum = from_input[t] + product(states[0], recurrent, masks.recurrent);
    return states[0] = config().activation(sum);
  });
}

void LSTMCellLayer::build(const Shape& input_shape) {
  const int64_t units = config().units;
  const Initializer given = config().bias_initializer;
  const auto forget_bias = [given, units](const Shape&, DType dtype) {
    return at::cat({given({units}, dtype), ones({units}, dtype), given({2 * units}, dtype)});
  };
  make_weights(features(input_shape, name()), 4 * units, {4 * units},
               config().unit_forget_bias ? Initializer(forget_bias) : given);
}

bool LSTMCellLayer::has_node(const SequenceRun& run) const {
  return has_tanh_and_sigmoid(config()) && internal::has_recurrent_node(run, kernel_.dtype());
}

Tensor LSTMCellLayer::run(SequenceRun& run, const CallArgs& args) {
  const Masks masks = draw_masks(run, args, 4);
  if (masks.recurrent.empty() && masks.input.size() <= 1 && has_node(run)) {
    if (!masks.input.empty()) run.steps = run.steps * masks.input[0];
    return internal::lstm(run, {kernel_, recurrent_kernel_, bias_});
  }
  if (masks.recurrent.empty() && masks.input.size() <= 1 && has_tanh_and_sigmoid(config()) &&
      internal::has_device_recurrence(run)) {
    if (!masks.input.empty()) run.steps = run.steps * masks.input[0];
    return internal::device_lstm(run, weight(kernel_), weight(recurrent_kernel_), weight(bias_));
  }
  const Tensor from_input = input_product(run.steps, weight(kernel_), weight(bias_), masks.input);
  const Tensor recurrent = weight(recurrent_kernel_);
  const ActivationFunction& activation = config().activation;
  const ActivationFunction& gate = config().recurrent_activation;
  return internal::run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
    const Tensor z = from_input[t] + product(states[0], recurrent, masks.recurrent);
    const std::vector<Tensor> parts = z.chunk(4, -1);
    states[1] = gate(parts[1]) * states[1] + gate(parts[0]) * activation(parts[2]);
    return states[0] = gate(parts[3]) * activation(states[1]);
  });
}

void GRUCellLayer::build(const Shape& input_shape) {
  const int64_t columns = 3 * config().units;
  make_weights(features(input_shape, name()), columns,
               config().reset_after ? Shape{2, columns} : Shape{columns},
               config().bias_initializer);
}

bool GRUCellLayer::has_node(const SequenceRun& run) const {
  return config().reset_after && has_tanh_and_sigmoid(config()) &&
         internal::has_recurrent_node(run, kernel_.dtype());
}

// The new state. Shapes: from_input [b, 3 units], state [b, units].
Tensor GRUCellLayer::mix(const Tensor& from_input, const Tensor& state, const Masks& masks) const {
  const int64_t units = config().units;
  const ActivationFunction& activation = config().activation;
  const ActivationFunction& gate = config().recurrent_activation;
  const Tensor kernel = weight(recurrent_kernel_);
  const std::vector<Tensor> x = from_input.chunk(3, -1);
  if (config().reset_after) {
    Tensor inner = product(state, kernel, masks.recurrent);
    if (bias_) inner = inner + weight(bias_)[1];
    const std::vector<Tensor> h = inner.chunk(3, -1);
    const Tensor z = gate(x[0] + h[0]);
    const Tensor candidate = activation(x[2] + gate(x[1] + h[1]) * h[2]);
    return z * state + (1 - z) * candidate;
  }
  std::vector<Tensor> first, last;
  if (!masks.recurrent.empty()) {
    first = {masks.recurrent[0], masks.recurrent[1]};
    last = {masks.recurrent[2]};
  }
  const std::vector<Tensor> h = product(state, kernel.narrow(1, 0, 2 * units), first).chunk(2, -1);
  const Tensor z = gate(x[0] + h[0]);
  const Tensor reset = gate(x[1] + h[1]) * state;
  const Tensor candidate =
      activation(x[2] + product(reset, kernel.narrow(1, 2 * units, units), last));
  return z * state + (1 - z) * candidate;
}

Tensor GRUCellLayer::run(SequenceRun& run, const CallArgs& args) {
  const Masks masks = draw_masks(run, args, 3);
  if (masks.recurrent.empty() && masks.input.size() <= 1 && has_node(run)) {
    if (!masks.input.empty()) run.steps = run.steps * masks.input[0];
    return internal::gru(run, {kernel_, recurrent_kernel_, bias_});
  }
  if (masks.recurrent.empty() && masks.input.size() <= 1 && config().reset_after &&
      has_tanh_and_sigmoid(config()) && internal::has_device_recurrence(run)) {
    if (!masks.input.empty()) run.steps = run.steps * masks.input[0];
    return internal::device_gru(run, weight(kernel_), weight(recurrent_kernel_), weight(bias_));
  }
  Tensor bias = weight(bias_);
  if (bias.defined() && config().reset_after) bias = bias[0];
  const Tensor from_input = input_product(run.steps, weight(kernel_), bias, masks.input);
  return internal::run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
    return states[0] = mix(from_input[t], states[0], masks);
  });
}

StackedRNNCellsLayer::StackedRNNCellsLayer(StackedRNNCellsConfig config)
    : LayerImpl(std::move(config)) {
  COHORT_CHECK_ARG(!this->config().cells.empty(),
                   "[stacked_rnn_cells] expected at least one cell, got none");
  for (const Layer& cell : this->config().cells) {
    cells_.push_back(&internal::cell_of(cell, "stacked_rnn_cells"));
    track(cell, "cells/");
  }
}

template <class F>
void StackedRNNCellsLayer::for_each_cell(std::vector<Tensor>& states, const F& each) const {
  auto from = states.begin();
  for (RNNCellBase* cell : cells_) {
    const auto count = static_cast<std::ptrdiff_t>(cell->state_size().size());
    std::vector<Tensor> own(from, from + count);
    each(*cell, own);
    from = std::move(own.begin(), own.end(), from);
  }
}

Shape StackedRNNCellsLayer::state_size() const {
  Shape sizes;
  for (const RNNCellBase* cell : cells_) {
    const Shape own = cell->state_size();
    sizes.insert(sizes.end(), own.begin(), own.end());
  }
  return sizes;
}

void StackedRNNCellsLayer::build(const Shape& input_shape) {
  Shape step = input_shape;
  for (RNNCellBase* cell : cells_) {
    cell->ensure_built(step);
    step = cell->output_shape(step);
  }
}

Tensor StackedRNNCellsLayer::step(const Tensor& input, std::vector<Tensor>& states,
                                  const CallArgs& args) {
  Tensor x = input;
  for_each_cell(states,
                [&](RNNCellBase& cell, std::vector<Tensor>& own) { x = cell.step(x, own, args); });
  return x;
}

// Cell by cell, each over the whole sequence: a step of one needs no later step of the others.
Tensor StackedRNNCellsLayer::run(SequenceRun& run, const CallArgs& args) {
  Tensor x = run.steps;
  for_each_cell(run.states, [&](RNNCellBase& cell, std::vector<Tensor>& own) {
    const bool last = &cell == cells_.back();
    SequenceRun part{.steps = x,
                     .states = std::move(own),
                     .mask = run.mask,
                     .zero_output_for_mask = last && run.zero_output_for_mask,
                     .return_sequences = !last || run.return_sequences};
    x = cell.run(part, args);
    own = std::move(part.states);
  });
  return x;
}

std::vector<Shape> StackedRNNCellsLayer::state_shapes(const Shape& step) const {
  std::vector<Shape> shapes;
  Shape in = step;
  for (const RNNCellBase* cell : cells_) {
    for (Shape& shape : cell->state_shapes(in)) shapes.push_back(std::move(shape));
    in = cell->output_shape(in);
  }
  return shapes;
}

Shape StackedRNNCellsLayer::output_shape(const Shape& step) const {
  Shape shape = step;
  for (const RNNCellBase* cell : cells_) shape = cell->output_shape(shape);
  return shape;
}

Element StackedRNNCellsLayer::nest_states(const std::vector<Tensor>& states) const {
  std::vector<Element> nests;
  std::vector<Tensor> all = states;
  for_each_cell(all, [&](const RNNCellBase& cell, const std::vector<Tensor>& own) {
    nests.push_back(cell.nest_states(own));
  });
  return Element::tuple(std::move(nests));
}

SimpleRNNCell::SimpleRNNCell(int64_t units, SimpleRNNCellOptions options)
    : Layer(std::make_shared<SimpleRNNCellLayer>(SimpleRNNCellConfig{std::move(options), units})) {}

LSTMCell::LSTMCell(int64_t units, LSTMCellOptions options)
    : Layer(std::make_shared<LSTMCellLayer>(LSTMCellConfig{std::move(options), units})) {}

GRUCell::GRUCell(int64_t units, GRUCellOptions options)
    : Layer(std::make_shared<GRUCellLayer>(GRUCellConfig{std::move(options), units})) {}

StackedRNNCells::StackedRNNCells(std::vector<Layer> cells, StackedRNNCellsOptions options)
    : Layer(std::make_shared<StackedRNNCellsLayer>(
          StackedRNNCellsConfig{std::move(options), std::move(cells)})) {}

}  // namespace cohort::keras
