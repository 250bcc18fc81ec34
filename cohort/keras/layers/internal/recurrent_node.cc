// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/recurrent_node.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "cohort/keras/layers/internal/products.h"

namespace cohort::keras::internal {

bool has_recurrent_node(const SequenceRun& run, DType weights) {
  const DType dtype = run.steps.scalar_type();
  bool fits = dtype == weights && (dtype == kFloat32 || dtype == kFloat64);
  fits = fits && run.steps.device().is_cpu() && run.steps.numel() > 0;
  for (const Tensor& state : run.states) fits = fits && state.scalar_type() == dtype;
  return fits;
}

Tensor all_rows(const Tensor& steps) { return steps.flatten(0, 1); }

Tensor input_gates(const Tensor& x, const Tensor& kernel, const Tensor& bias,
                   RecurrentTrace& trace) {
  trace.rows = all_rows(x).contiguous();
  Tensor gates = at::empty({trace.rows.size(0), kernel.size(1)}, x.options());
  dense_product(gates, trace.rows, kernel, bias, false);
  return gates.view({x.size(0), x.size(1), kernel.size(1)});
}

void StepMask::settle(RecurrentTrace& trace, int64_t t) const {
  if (!is_on()) return;
  const Tensor counts = mask_[t].unsqueeze(-1);
  Tensor output = trace.outputs[t];
  output.copy_(trace.states[0][t + 1]);
  const Tensor off = counts.logical_not();
  if (zero_output_ || t == 0) {
    output.masked_fill_(off, 0);
  } else {
    output.copy_(output.where(counts, trace.outputs[t - 1]));
  }
  for (const Tensor& state : trace.states) {
    Tensor now = state[t + 1];
    now.copy_(now.where(counts, state[t]));
  }
}

StepGradients::StepGradients(const variable_list& gradients, const SequenceRun& run,
                             const Shape& state)
    : run_(run), outputs_(gradients[0]) {
  const Tensor* any = nullptr;
  for (const Tensor& g : gradients) any = g.defined() ? &g : any;
  for (std::size_t i = 1; i < gradients.size(); ++i) {
    const Tensor& g = gradients[i];
    states_.push_back(g.defined() ? g.clone(at::MemoryFormat::Contiguous)
                                  : at::zeros(state, any->options()));
  }
  if (outputs_.defined() && run.return_sequences) outputs_ = outputs_.transpose(0, 1);
}

std::vector<Tensor>& StepGradients::enter(int64_t t) {
  Tensor from_output;
  if (outputs_.defined() && run_.return_sequences) {
    from_output = outputs_[t];
  } else if (outputs_.defined()) {
    from_output = std::exchange(outputs_, Tensor());  // of the last step
  }
  if (!run_.mask.defined()) {
    if (from_output.defined()) states_[0].add_(from_output);
    return states_;
  }
  if (carried_.defined()) from_output = from_output.defined() ? from_output + carried_ : carried_;
  const Tensor counts = run_.mask[t].unsqueeze(-1);
  const Tensor off = counts.logical_not();
  aside_.clear();
  for (Tensor& state : states_) {
    aside_.push_back(state.masked_fill(counts, 0));
    state.masked_fill_(off, 0);
  }
  carried_ = Tensor();
  if (from_output.defined()) {
    states_[0].add_(from_output.masked_fill(off, 0));
    if (!run_.zero_output_for_mask) carried_ = from_output.masked_fill(counts, 0);
  }
  return states_;
}

void StepGradients::leave() {
  for (std::size_t i = 0; i < aside_.size(); ++i) states_[i].add_(aside_[i]);
  aside_.clear();
}

RecurrentNode::RecurrentNode(const SequenceRun& run, const RecurrentWeights& weights,
                             RecurrentTrace trace)
    : shape_{.mask = run.mask,
             .zero_output_for_mask = run.zero_output_for_mask,
             .return_sequences = run.return_sequences},
      x_(run.steps, false),
      kernel_(weights.kernel.value(), false),
      recurrent_kernel_(weights.recurrent_kernel.value(), false),
      trace_(std::move(trace)),
      has_bias_(bool(weights.bias)) {
  add_input(run.steps);
  for (const Tensor& state : run.states) {
    states_.emplace_back(state, false);
    add_input(state);
  }
  add_weight(weights.kernel);
  add_weight(weights.recurrent_kernel);
  add_weight(weights.bias);
  if (has_bias_) bias_ = SavedVariable(weights.bias.value(), false);
}

void RecurrentNode::release_variables() {
  x_.reset_data();
  kernel_.reset_data();
  recurrent_kernel_.reset_data();
  bias_.reset_data();
  for (SavedVariable& state : states_) state.reset_data();
  trace_ = {};
}

void RecurrentNode::products_backward(const Tensor& d_input, const Tensor& d_inner,
                                      variable_list& out) {
  const Tensor x = x_.unpack();
  const Tensor kernel = kernel_.unpack();
  const Tensor gradients = all_rows(d_input);
  const auto put = [this](int i, const Tensor& left, const Tensor& right) {
    return weight_gradient(i, [&](Tensor& slot, bool accumulate) {
      dense_kernel_gradient(slot, left, right, accumulate);
    });
  };
  if (wants_input(0)) {
    Tensor dx = at::empty(trace_.rows.sizes(), trace_.rows.options());
    dense_input_gradient(dx, gradients, kernel);
    out[0] = dx.view(x.sizes());
  }
  const auto first = static_cast<std::size_t>(input_count());
  if (wants_weight(0)) out[first] = put(0, trace_.rows, gradients);
  if (!wants_weight(1)) return;
  const Tensor before = trace_.states[0].narrow(0, 0, x.size(0));
  out[first + 1] = put(1, all_rows(before), all_rows(d_inner));
}

// Runs the sequence again, recorded, and asks LibTorch.
variable_list RecurrentNode::differentiable_backward(variable_list&& gradients) {
  variable_list out(static_cast<std::size_t>(input_count()) + 3);
  std::vector<Tensor> sources = {x_.unpack()};
  SequenceRun run = shape_;
  run.steps = sources[0];
  for (SavedVariable& state : states_) {
    sources.push_back(state.unpack());
    run.states.push_back(sources.back());
  }
  sources.push_back(kernel_.unpack());
  sources.push_back(recurrent_kernel_.unpack());
  sources.push_back(has_bias_ ? bias_.unpack() : Tensor());
  const std::size_t first = sources.size() - 3;
  Tensor output = plain(run, sources[first], sources[first + 1], sources[first + 2]);
  if (run.return_sequences) output = output.transpose(0, 1);
  variable_list targets, given, wanted;
  const auto target = [&](const Tensor& y, const Tensor& g) {
    if (!g.defined() || !y.requires_grad()) return;
    targets.push_back(y);
    given.push_back(g);
  };
  target(output, gradients[0]);
  for (std::size_t i = 0; i < kinds(); ++i) target(run.states[i], gradients[i + 1]);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].defined() || !sources[i].requires_grad()) continue;
    if (!task_should_compute_output(i)) continue;
    places.push_back(i);
    wanted.push_back(sources[i]);
  }
  if (targets.empty() || wanted.empty()) return out;
  const variable_list found = torch::autograd::grad(targets, wanted, given, true, true, true);
  for (std::size_t i = 0; i < places.size(); ++i) out[places[i]] = found[i];
  return out;
}

}  // namespace cohort::keras::internal
