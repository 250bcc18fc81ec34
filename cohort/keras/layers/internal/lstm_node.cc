// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>

#include "cohort/keras/layers/internal/recurrent_kernels.h"
#include "cohort/keras/layers/internal/recurrent_node.h"

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
    return x_dtype() == kFloat64 ? backward_of<double>(gradients) : backward_of<float>(gradients);
  }

 private:
  DType x_dtype() const { return trace_.kept[0].scalar_type(); }

  template <class T>
  variable_list backward_of(const variable_list& gradients) {
    variable_list out(6);
    bool any = false;
    for (const Tensor& g : gradients) any = any || g.defined();
    if (!any) return out;
    const Tensor& gates = trace_.kept[0];
    const Tensor recurrent = recurrent_kernel_.unpack().t();
    const Tensor d_gates = at::empty(gates.sizes(), gates.options());
    StepGradients flow(gradients, shape_, shape_of(trace_.states[0][0]));
    for (int64_t t = gates.size(0) - 1; t >= 0; --t) {
      std::vector<Tensor>& d = flow.enter(t);
      const Tensor to = d_gates[t];
      lstm_backward(lstm_step<T>(trace_, t), d[0].const_data_ptr<T>(), d[1].data_ptr<T>(),
                    to.data_ptr<T>());
      at::mm_out(d[0], to, recurrent);
      flow.leave();
    }
    if (wants_input(1)) out[1] = flow.states()[0];
    if (wants_input(2)) out[2] = flow.states()[1];
    products_backward(d_gates, d_gates, out);
    if (has_bias() && wants_weight(2)) {
      const Tensor rows = all_rows(d_gates);
      out[5] = weight_gradient(2, [&](Tensor& slot, bool accumulate) {
        accumulate ? slot.add_(rows.sum(0)) : at::sum_out(slot, rows, at::IntArrayRef{0});
      });
    }
    return out;
  }
};

}  // namespace

Tensor lstm(SequenceRun& run, const RecurrentWeights& weights) {
  RecurrentTrace trace;
  {
    const cohort::internal::BelowAutograd below;
    const Tensor recurrent_kernel = weights.recurrent_kernel.value();
    const Tensor gates = input_gates(run.steps, weights.kernel.value(),
                                     weights.bias ? weights.bias.value() : Tensor());
    const Shape all = {gates.size(0) + 1, gates.size(1), recurrent_kernel.size(0)};
    for (const Tensor& first : run.states) {
      trace.states.push_back(at::empty(all, gates.options()));
      trace.states.back()[0].copy_(first);
    }
    const Shape steps = {all[0] - 1, all[1], all[2]};
    trace.kept = {gates, at::empty(steps, gates.options())};
    const StepMask mask(run);
    if (mask.is_on()) trace.outputs = at::empty(steps, gates.options());
    if (gates.scalar_type() == kFloat64) {
      lstm_forward<double>(trace, recurrent_kernel, mask);
    } else {
      lstm_forward<float>(trace, recurrent_kernel, mask);
    }
  }
  return finish<LSTMNode>(run, weights, std::move(trace));
}

}  // namespace cohort::keras::internal
