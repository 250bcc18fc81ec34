// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>

#include "cohort/keras/layers/internal/recurrent_kernels.h"
#include "cohort/keras/layers/internal/recurrent_node.h"

namespace cohort::keras::internal {
namespace {

// kept: the gates [t, b, 3 units] behind their activations, and the state's product for h.
template <class T>
GRUStep<T> gru_step(const RecurrentTrace& trace, int64_t t) {
  const Tensor gates = trace.kept[0][t], inner = trace.kept[1][t], state = trace.states[0][t];
  return {.rows = state.size(0),
          .units = state.size(1),
          .gates = gates.const_data_ptr<T>(),
          .inner = inner.const_data_ptr<T>(),
          .state = state.const_data_ptr<T>()};
}

template <class T>
void gru_forward(RecurrentTrace& trace, const Tensor& kernel, const Tensor& bias,
                 const StepMask& mask) {
  const int64_t length = trace.kept[0].size(0);
  const int64_t units = kernel.size(0);
  Tensor product = at::empty({trace.kept[0].size(1), 3 * units}, kernel.options());
  for (int64_t t = 0; t < length; ++t) {
    const Tensor state = trace.states[0][t];
    if (bias.defined()) {
      at::addmm_out(product, bias, state, kernel);
    } else {
      at::mm_out(product, state, kernel);
    }
    const Tensor gates = trace.kept[0][t];
    Tensor inner = trace.kept[1][t];
    inner.copy_(product.narrow(1, 2 * units, units));
    gates.narrow(1, 0, 2 * units).add_(product.narrow(1, 0, 2 * units)).sigmoid_();
    gates.narrow(1, 2 * units, units).addcmul_(gates.narrow(1, units, units), inner).tanh_();
    const Tensor next = trace.states[0][t + 1];
    gru_state(gru_step<T>(trace, t), next.data_ptr<T>());
    mask.settle(trace, t);
  }
}

class GRUNode final : public RecurrentNode {
 public:
  using RecurrentNode::RecurrentNode;

 protected:
  Tensor plain(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
               const Tensor& bias) const override {
    Tensor from_input = run.steps.matmul(kernel);
    if (bias.defined()) from_input = from_input + bias[0];
    return run_steps(run, [&](int64_t t, std::vector<Tensor>& states) {
      Tensor product = states[0].mm(recurrent_kernel);
      if (bias.defined()) product = product + bias[1];
      const std::vector<Tensor> h = product.chunk(3, -1);
      const std::vector<Tensor> x = from_input[t].chunk(3, -1);
      const Tensor z = (x[0] + h[0]).sigmoid();
      const Tensor candidate = (x[2] + (x[1] + h[1]).sigmoid() * h[2]).tanh();
      return states[0] = z * states[0] + (1 - z) * candidate;
    });
  }

  variable_list backward(variable_list&& gradients) override {
    const bool wide = trace_.kept[0].scalar_type() == kFloat64;
    return wide ? backward_of<double>(gradients) : backward_of<float>(gradients);
  }

 private:
  template <class T>
  variable_list backward_of(const variable_list& gradients) {
    variable_list out(5);
    if (!gradients[0].defined() && !gradients[1].defined()) return out;
    const Tensor& gates = trace_.kept[0];
    const Tensor recurrent = recurrent_kernel_.unpack().t();
    if (has_bias()) bias_.unpack();  // throws if it has changed, for `kept` came of it
    const Tensor d_input = at::empty(gates.sizes(), gates.options());
    const Tensor d_inner = at::empty(gates.sizes(), gates.options());
    StepGradients flow(gradients, shape_, shape_of(trace_.states[0][0]));
    for (int64_t t = gates.size(0) - 1; t >= 0; --t) {
      Tensor d = flow.enter(t)[0];
      const Tensor to_input = d_input[t], to_inner = d_inner[t];
      gru_backward(gru_step<T>(trace_, t), d.data_ptr<T>(), to_input.data_ptr<T>(),
                   to_inner.data_ptr<T>());
      d.addmm_(to_inner, recurrent);
      flow.leave();
    }
    if (wants_input(1)) out[1] = flow.states()[0];
    products_backward(d_input, d_inner, out);
    if (has_bias() && wants_weight(2)) {
      out[4] = weight_gradient(2, [&](Tensor& slot, bool accumulate) {
        const Tensor sums = at::stack({all_rows(d_input).sum(0), all_rows(d_inner).sum(0)});
        accumulate ? slot.add_(sums) : slot.copy_(sums);
      });
    }
    return out;
  }
};

}  // namespace

Tensor gru(SequenceRun& run, const RecurrentWeights& weights) {
  RecurrentTrace trace;
  {
    const cohort::internal::autograd::BelowAutograd below;
    const Tensor kernel = weights.recurrent_kernel.value();
    const Tensor bias = weights.bias ? weights.bias.value() : Tensor();
    const Tensor gates =
        input_gates(run.steps, weights.kernel.value(), bias.defined() ? bias[0] : Tensor(), trace);
    const Shape steps = {gates.size(0), gates.size(1), kernel.size(0)};
    trace.states = {at::empty({steps[0] + 1, steps[1], steps[2]}, gates.options())};
    trace.states[0][0].copy_(run.states[0]);
    trace.kept = {gates, at::empty(steps, gates.options())};
    const StepMask mask(run);
    if (mask.is_on()) trace.outputs = at::empty(steps, gates.options());
    const Tensor inner_bias = bias.defined() ? bias[1] : Tensor();
    if (gates.scalar_type() == kFloat64) {
      gru_forward<double>(trace, kernel, inner_bias, mask);
    } else {
      gru_forward<float>(trace, kernel, inner_bias, mask);
    }
  }
  return finish<GRUNode>(run, weights, std::move(trace));
}

}  // namespace cohort::keras::internal
