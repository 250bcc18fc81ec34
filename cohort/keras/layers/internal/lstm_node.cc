// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "cohort/keras/layers/internal/kernels.h"
#include "cohort/keras/layers/internal/recurrent_kernels.h"
#include "cohort/keras/layers/internal/recurrent_node.h"
#include "cohort/runtime/intra_op.h"

namespace cohort::keras::internal {
namespace {

// kept: the gates [t, b, 4 units] behind their activations, and tanh of the new carries.
template <class T>
LSTMStep<T> lstm_step(const RecurrentTrace& trace, int64_t t) {
  const Tensor gates = trace.kept[0][t], carry = trace.states[1][t], th = trace.kept[1][t];
  return {.rows = carry.size(0),
          .units = carry.size(1),
          .gates = gates.const_data_ptr<T>(),
          .carry = carry.const_data_ptr<T>(),
          .tanh_carry = th.const_data_ptr<T>()};
}

template <class T>
void lstm_forward(RecurrentTrace& trace, const Tensor& recurrent_kernel, const StepMask& mask) {
  const int64_t length = trace.kept[0].size(0);
  const int64_t units = recurrent_kernel.size(0);
  for (int64_t t = 0; t < length; ++t) {
    Tensor gates = trace.kept[0][t];
    gates.addmm_(trace.states[0][t], recurrent_kernel);
    gates.narrow(1, 0, 2 * units).sigmoid_();
    gates.narrow(1, 2 * units, units).tanh_();
    Tensor output_gate = gates.narrow(1, 3 * units, units).sigmoid_();
    const Tensor carry = trace.states[1][t + 1];
    lstm_carry(lstm_step<T>(trace, t), carry.data_ptr<T>());
    Tensor th = trace.kept[1][t], state = trace.states[0][t + 1];
    at::tanh_out(th, carry);
    at::mul_out(state, output_gate, th);
    mask.settle(trace, t);
  }
}

// Whether the kernels of kernels.h run the steps; they are float32's.
bool has_own_steps(const Tensor& gates) {
  return kernels().fast_products && gates.scalar_type() == kFloat32;
}

float* floats_of(const Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; }

// `mask` is contiguous, and lives as long as what is returned.
LSTMSequence sequence_of(const RecurrentTrace& trace, const Tensor& mask, bool zero_output) {
  const Tensor& th = trace.kept[1];
  return {.steps = th.size(0),
          .rows = th.size(1),
          .units = th.size(2),
          .gates = floats_of(trace.kept[0]),
          .state = floats_of(trace.states[0]),
          .carry = floats_of(trace.states[1]),
          .tanh_carry = floats_of(th),
          .mask = mask.defined() ? mask.const_data_ptr<bool>() : nullptr,
          .output = floats_of(trace.outputs),
          .zero_output = zero_output};
}

Tensor mask_in_order(const SequenceRun& run) {
  return run.mask.defined() ? run.mask.contiguous() : Tensor();
}

// Calls rows(first, last) for all of the batch: no row needs another, so threads share them.
template <class F>
void over_batch(const LSTMSequence& s, const F& rows) {
  constexpr int64_t kUnit = 6;  // of tiles
  const int64_t units = (s.rows + kUnit - 1) / kUnit;
  const double operations =
      8.0 * static_cast<double>(s.steps * s.rows) * static_cast<double>(s.units * s.units);
  const int threads = cohort::internal::runtime::threads_worth(
      operations, cohort::internal::runtime::intra_op_threads());
  const int64_t parts = std::min<int64_t>(threads, units);
  const auto border = [&](int64_t i) { return std::min(s.rows, units * i / parts * kUnit); };
  cohort::internal::runtime::run_pieces(static_cast<int>(parts),
                                        [&](int i) { rows(border(i), border(i + 1)); });
}

void run_own_steps(RecurrentTrace& trace, const Tensor& recurrent_kernel, const SequenceRun& run) {
  const Tensor mask = mask_in_order(run);
  const LSTMSequence s = sequence_of(trace, mask, run.zero_output_for_mask);
  const int64_t lanes = kernels().lanes;
  const Tensor packed =
      at::empty({(s.units + lanes - 1) / lanes * lanes * 4 * s.units}, recurrent_kernel.options());
  kernels().lstm_pack(recurrent_kernel.contiguous().const_data_ptr<float>(), s.units,
                      floats_of(packed));
  const float* from = packed.const_data_ptr<float>();
  over_batch(s, [&](int64_t first, int64_t last) { kernels().lstm_forward(s, from, first, last); });
}

// The gradients of the first states; writes those of the gates.
std::vector<Tensor> own_steps_backward(const RecurrentTrace& trace, const SequenceRun& run,
                                       const Tensor& recurrent_kernel,
                                       const variable_list& gradients, const Tensor& d_gates) {
  const Tensor mask = mask_in_order(run);
  const LSTMSequence s = sequence_of(trace, mask, run.zero_output_for_mask);
  const Tensor d_state = at::empty({2, s.rows, s.units}, d_gates.options());
  const Tensor d_carry = at::empty({s.rows, s.units}, d_gates.options());
  const auto begin = [](Tensor to, const Tensor& from) {
    from.defined() ? to.copy_(from) : to.zero_();
  };
  begin(d_state[0], gradients[1]);
  begin(d_carry, gradients[2]);
  Tensor output = gradients[0];
  if (output.defined() && output.stride(-1) != 1) output = output.contiguous();
  const bool carries = mask.defined() && !run.zero_output_for_mask && output.defined();
  const Tensor carried = carries ? at::zeros({s.rows, s.units}, d_gates.options()) : Tensor();
  const Tensor transposed = recurrent_kernel.t().contiguous();
  LSTMGradients g{.sequence = s,
                  .transposed = transposed.const_data_ptr<float>(),
                  .output = output.defined() ? output.const_data_ptr<float>() : nullptr,
                  .output_step = 0,
                  .output_row = output.defined() ? output.stride(0) : 0,
                  .last_only = !run.return_sequences,
                  .state = floats_of(d_state),
                  .carry = floats_of(d_carry),
                  .carried = floats_of(carried),
                  .gates = floats_of(d_gates)};
  if (output.defined() && run.return_sequences) g.output_step = output.stride(1);
  over_batch(s, [&](int64_t first, int64_t last) { kernels().lstm_backward(g, first, last); });
  return {d_state[s.steps % 2], d_carry};
}

template <class T>
std::vector<Tensor> plain_steps_backward(const RecurrentTrace& trace, const SequenceRun& run,
                                         const Tensor& recurrent_kernel,
                                         const variable_list& gradients, const Tensor& d_gates) {
  const Tensor recurrent = recurrent_kernel.t();
  StepGradients flow(gradients, run, shape_of(trace.states[0][0]));
  for (int64_t t = d_gates.size(0) - 1; t >= 0; --t) {
    std::vector<Tensor>& d = flow.enter(t);
    const Tensor to = d_gates[t];
    lstm_backward(lstm_step<T>(trace, t), d[0].const_data_ptr<T>(), d[1].data_ptr<T>(),
                  to.data_ptr<T>());
    at::mm_out(d[0], to, recurrent);
    flow.leave();
  }
  return flow.states();
}

class LSTMNode final : public RecurrentNode {
 public:
  using RecurrentNode::RecurrentNode;

 protected:
  Tensor plain(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
               const Tensor& bias) const override {
    Tensor from_input = run.steps.matmul(kernel);
    if (bias.defined()) from_input = from_input + bias;
    return run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
      const Tensor sum = from_input[t] + states[0].mm(recurrent_kernel);
      const std::vector<Tensor> z = sum.chunk(4, -1);
      states[1] = z[1].sigmoid() * states[1] + z[0].sigmoid() * z[2].tanh();
      return states[0] = z[3].sigmoid() * states[1].tanh();
    });
  }

  variable_list backward(variable_list&& gradients) override {
    variable_list out(6);
    bool any = false;
    for (const Tensor& g : gradients) any = any || g.defined();
    if (!any) return out;
    const Tensor& gates = trace_.kept[0];
    const Tensor recurrent = recurrent_kernel_.unpack();
    const Tensor d_gates = at::empty(gates.sizes(), gates.options());
    const auto steps = has_own_steps(gates)              ? own_steps_backward
                       : gates.scalar_type() == kFloat64 ? plain_steps_backward<double>
                                                         : plain_steps_backward<float>;
    const std::vector<Tensor> first = steps(trace_, shape_, recurrent, gradients, d_gates);
    if (wants_input(1)) out[1] = first[0];
    if (wants_input(2)) out[2] = first[1];
    products_backward(d_gates, d_gates, out);
    if (has_bias() && wants_weight(2)) out[5] = bias_gradient(all_rows(d_gates));
    return out;
  }

 private:
  Tensor bias_gradient(const Tensor& rows) {
    return weight_gradient(2, [&](Tensor& slot, bool accumulate) {
      if (has_own_steps(rows)) {
        kernels().mask_and_sum(floats_of(rows), nullptr, nullptr, floats_of(slot), rows.size(0),
                               rows.size(1), accumulate);
      } else {
        accumulate ? slot.add_(rows.sum(0)) : at::sum_out(slot, rows, at::IntArrayRef{0});
      }
    });
  }
};

}  // namespace

Tensor lstm(SequenceRun& run, const RecurrentWeights& weights) {
  RecurrentTrace trace;
  {
    const cohort::internal::autograd::BelowAutograd below;
    const Tensor recurrent_kernel = weights.recurrent_kernel.value();
    const Tensor gates = input_gates(run.steps, weights.kernel.value(),
                                     weights.bias ? weights.bias.value() : Tensor(), trace);
    const Shape all = {gates.size(0) + 1, gates.size(1), recurrent_kernel.size(0)};
    for (const Tensor& first : run.states) {
      trace.states.push_back(at::empty(all, gates.options()));
      trace.states.back()[0].copy_(first);
    }
    const Shape steps = {all[0] - 1, all[1], all[2]};
    trace.kept = {gates, at::empty(steps, gates.options())};
    const StepMask mask(run);
    if (mask.is_on()) trace.outputs = at::empty(steps, gates.options());
    if (has_own_steps(gates)) {
      run_own_steps(trace, recurrent_kernel, run);
    } else if (gates.scalar_type() == kFloat64) {
      lstm_forward<double>(trace, recurrent_kernel, mask);
    } else {
      lstm_forward<float>(trace, recurrent_kernel, mask);
    }
  }
  return finish<LSTMNode>(run, weights, std::move(trace));
}

}  // namespace cohort::keras::internal
