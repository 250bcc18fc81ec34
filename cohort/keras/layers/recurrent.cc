// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/recurrent.h"

#include <ATen/ops/zeros.h>

#include "cohort/base/check.h"
#include "cohort/runtime/replica_group.h"
#include "cohort/runtime/replica_scope.h"
#include "cohort/strategy/strategy.h"
#include "cohort/variables/step_undo.h"

namespace cohort::keras {

void internal::check_no_cudnn(const std::optional<bool>& use_cudnn, const char* who) {
  if (!use_cudnn.value_or(false)) return;
  throw Unimplemented(str_cat("[", who,
                              "] expected use_cudnn unset or false, got true: there is "
                              "no cuDNN here, and the layer is fused without it"));
}

void RecurrentBase::set_cell(const Layer& cell, const SequenceModes& modes) {
  cell_ = &internal::cell_of(cell, "rnn");
  modes_ = modes;
  track(cell, "cell");
}

void RecurrentBase::build(const Shape& input_shape) {
  COHORT_CHECK_ARG(input_shape.size() >= 3, "[", name(),
                   "] expected sequences [batch, steps, features], got shape ",
                   bracketed(input_shape));
  Shape step = input_shape;
  step.erase(step.begin() + 1);
  cell_->ensure_built(step);
  set_input_spec({.rank = static_cast<int64_t>(input_shape.size())});
  // Several replicas have parts of the batch: the first call says of which size.
  const bool is_whole = get_strategy().num_replicas_in_sync() == 1;
  if (modes_.stateful && step[0] > 0 && is_whole) make_states(cell_->state_shapes(step));
}

void RecurrentBase::make_states(const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    states_.push_back(add_weight({.name = "rnn_state",
                                  .shape = shape,
                                  .dtype = dtype_policy().variable_dtype(),
                                  .initializer = "zeros",
                                  .trainable = false,
                                  .synchronization = Synchronization::kOnRead,
                                  .aggregation = Aggregation::kOnlyFirstReplica}));
  }
}

void RecurrentBase::reset_state() const {
  COHORT_CHECK_STATE(modes_.stateful, "[reset_state] expected a stateful layer, got \"", name(),
                     "\"");
  for (const Variable& state : states_) state.assign(0.0);
}

// The forward pass is only half a step: if the other half fails, this was for nothing.
void RecurrentBase::keep_states(const std::vector<Tensor>& states) const {
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (auto* undo = cohort::internal::variables::StepUndo::current(); undo != nullptr) {
      undo->keep(states_[i].value());
    }
    states_[i].assign(states[i].detach());
  }
}

std::vector<Tensor> RecurrentBase::first_states(const Element& inputs, const Element& given,
                                                const Tensor& step) {
  const std::vector<Shape> shapes = cell_->state_shapes(shape_of(step));
  std::vector<Tensor> states = internal::flat_tensors(given);
  for (std::size_t i = 1; inputs.is_tuple() && i < inputs.size(); ++i) {
    for (Tensor& state : internal::flat_tensors(inputs[i])) states.push_back(std::move(state));
  }
  if (states.empty() && modes_.stateful) {
    if (states_.empty()) {
      cohort::internal::runtime::ReplicaGroup* group =
          cohort::internal::runtime::current_replica_group();
      const auto make = [&] {
        if (!states_.empty()) return;
        make_states(shapes);
        tracked_parts_grown();
      };
      if (group == nullptr) {
        make();
      } else {
        group->merge("rnn.make_states", *this,
                     [&](cohort::internal::runtime::Brought<RecurrentBase>) { make(); });
      }
    }
    // What they hold now: the layer writes them before the backward pass.
    for (const Variable& state : states_) states.push_back(state.value().clone());
  }
  if (states.empty()) {
    for (const Shape& shape : shapes) states.push_back(at::zeros(shape, step.options()));
  }
  COHORT_CHECK_ARG(states.size() == shapes.size(), "[", name(), "] expected ", shapes.size(),
                   " initial states, got ", states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    COHORT_CHECK_ARG(shape_of(states[i]) == shapes[i], "[", name(), "] expected ",
                     modes_.stateful ? "batches of one size and so " : "", "states of shape ",
                     bracketed(shapes[i]), ", got ", bracketed(states[i].sizes()));
    states[i] = states[i].to(step.scalar_type());
  }
  return states;
}

SequenceRun RecurrentBase::make_run(const Element& inputs, const CallArgs& args) {
  const Tensor x = inputs[0].tensor().to(dtype_policy().compute_dtype());
  SequenceRun run{.steps = x.transpose(0, 1),
                  .zero_output_for_mask = modes_.zero_output_for_mask,
                  .return_sequences = modes_.return_sequences};
  COHORT_CHECK_ARG(x.size(1) > 0, "[", name(), "] expected at least one step, got inputs of shape ",
                   bracketed(x.sizes()));
  run.states = first_states(inputs, args.initial_state, run.steps[0]);
  const std::vector<Tensor> masks = internal::flat_tensors(args.mask);
  if (!masks.empty() && masks[0].defined()) {
    const Tensor& mask = masks[0];
    COHORT_CHECK_ARG(mask.dim() == 2 && mask.size(0) == x.size(0) && mask.size(1) == x.size(1), "[",
                     name(), "] expected a mask of shape ", bracketed(Shape{x.size(0), x.size(1)}),
                     ", got ", bracketed(mask.sizes()));
    run.mask = mask.to(kBool).transpose(0, 1);
  }
  if (!modes_.go_backwards) return run;
  run.steps = run.steps.flip(0);
  if (run.mask.defined()) run.mask = run.mask.flip(0);
  return run;
}

Tensor RecurrentBase::call(const Tensor& input, const CallArgs& args) {
  return call_nest(input, args).tensor();
}

Element RecurrentBase::call_nest(const Element& inputs, const CallArgs& args) {
  SequenceRun run = make_run(inputs, args);
  Tensor output = cell_->run(run, args);
  if (modes_.return_sequences) output = output.transpose(0, 1);
  if (modes_.stateful) keep_states(run.states);
  if (!modes_.return_state) return output;
  std::vector<Element> parts = {output};
  const Element states = cell_->nest_states(run.states);
  for (std::size_t i = 0; i < states.size(); ++i) parts.push_back(states[i]);
  return Element::tuple(std::move(parts));
}

Shape RecurrentBase::compute_output_shape(const Shape& input_shape) const {
  COHORT_CHECK_ARG(input_shape.size() > 1, "[", name(),
                   "] expected inputs [batch, steps, ...], got ", "shape ", bracketed(input_shape));
  Shape step = input_shape;
  step.erase(step.begin() + 1);
  Shape out = cell_->output_shape(step);
  if (modes_.return_sequences) out.insert(out.begin() + 1, input_shape[1]);
  return out;
}

ElementSpec RecurrentBase::compute_output_spec(const ElementSpec& inputs) const {
  const Shape in = inputs[0].leaf().shape;
  const DType dtype = dtype_policy().compute_dtype();
  const TensorSpec output{.shape = compute_output_shape(in), .dtype = dtype};
  if (!modes_.return_state) return output;
  Shape step = in;
  step.erase(step.begin() + 1);
  const ElementSpec cell =
      cell_->compute_output_spec(TensorSpec{.shape = std::move(step), .dtype = dtype});
  std::vector<ElementSpec> parts = {output};
  for (std::size_t i = 0; i < cell[1].size(); ++i) parts.push_back(cell[1][i]);
  return ElementSpec::tuple(std::move(parts));
}

Element RecurrentBase::compute_mask(const Element&, const Element& mask) const {
  const std::vector<Tensor> masks = internal::flat_tensors(mask);
  if (masks.empty() || !modes_.return_sequences) return {};
  const Element of_output = masks[0];
  if (!modes_.return_state) return of_output;
  std::vector<Element> all(1 + cell_->state_size().size());
  all[0] = of_output;
  return Element::tuple(std::move(all));
}

RNNLayer::RNNLayer(RNNConfig config) : RecurrentImpl(std::move(config)) {
  COHORT_CHECK_ARG(this->config().cell.has_value(), "[rnn] expected a cell, got none");
  set_cell(*this->config().cell, internal::modes_of(this->config()));
}

SimpleRNNLayer::SimpleRNNLayer(SimpleRNNConfig config) : RecurrentImpl(std::move(config)) {
  set_cell(std::make_shared<SimpleRNNCellLayer>(
               internal::cell_config<SimpleRNNCellConfig>(this->config(), "simple_rnn_cell")),
           internal::modes_of(this->config()));
}

LSTMLayer::LSTMLayer(LSTMConfig config) : RecurrentImpl(std::move(config)) {
  internal::check_no_cudnn(this->config().use_cudnn, "lstm");
  set_cell(std::make_shared<LSTMCellLayer>(
               internal::cell_config<LSTMCellConfig>(this->config(), "lstm_cell")),
           internal::modes_of(this->config()));
}

GRULayer::GRULayer(GRUConfig config) : RecurrentImpl(std::move(config)) {
  internal::check_no_cudnn(this->config().use_cudnn, "gru");
  set_cell(std::make_shared<GRUCellLayer>(
               internal::cell_config<GRUCellConfig>(this->config(), "gru_cell")),
           internal::modes_of(this->config()));
}

RNN::RNN(Layer cell, RNNOptions options)
    : RecurrentLayer(std::make_shared<RNNLayer>(RNNConfig{std::move(options), std::move(cell)})) {}

RNN::RNN(std::vector<Layer> cells, RNNOptions options)
    : RNN(StackedRNNCells(std::move(cells)), std::move(options)) {}

SimpleRNN::SimpleRNN(int64_t units, SimpleRNNOptions options)
    : RecurrentLayer(std::make_shared<SimpleRNNLayer>(SimpleRNNConfig{std::move(options), units})) {
}

LSTM::LSTM(int64_t units, LSTMOptions options)
    : RecurrentLayer(std::make_shared<LSTMLayer>(LSTMConfig{std::move(options), units})) {}

GRU::GRU(int64_t units, GRUOptions options)
    : RecurrentLayer(std::make_shared<GRULayer>(GRUConfig{std::move(options), units})) {}

}  // namespace cohort::keras
