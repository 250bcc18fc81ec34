// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/device_recurrent.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "cohort/runtime/replica_scope.h"

namespace cohort::keras::internal {
namespace {

// As cudnnRNNMode_t has them.
constexpr int64_t kLstm = 2, kGru = 3;

// [in, 3 units] or [3 units] with the gates z, r, h as r, z, h.
Tensor in_cudnn_order(const Tensor& gates) {
  const std::vector<Tensor> parts = gates.chunk(3, -1);
  return at::cat({parts[1], parts[0], parts[2]}, -1);
}

struct Outputs {
  Tensor steps, state, carry;
};

// Weights are [gates, in], as many biases as kernels or none.
Outputs run_cudnn(const SequenceRun& run, int64_t mode, const std::vector<Tensor>& weights) {
  const Tensor state = run.states[0].unsqueeze(0).contiguous();
  const Tensor carry = mode == kLstm ? run.states[1].unsqueeze(0).contiguous() : Tensor();
  // The backward pass needs what a training forward pass keeps.
  const bool train = at::GradMode::is_enabled();
  auto [steps, last_state, last_carry, reserve, buffer] =
      at::_cudnn_rnn(run.steps.contiguous(), weights, static_cast<int64_t>(weights.size()), {},
                     state, carry, mode, state.size(2), /*proj_size=*/0, /*num_layers=*/1,
                     /*batch_first=*/false, /*dropout=*/0.0, train, /*bidirectional=*/false,
                     at::IntArrayRef{}, {});
  return {steps, last_state.squeeze(0), mode == kLstm ? last_carry.squeeze(0) : Tensor()};
}

Tensor output_of(const SequenceRun& run, const Tensor& steps) {
  return run.return_sequences ? steps : steps[steps.size(0) - 1];
}

}  // namespace

bool has_device_recurrence(const SequenceRun& run) {
  const DType type = run.steps.scalar_type();
  // cuDNN's backward pass cannot be differentiated again.
  const bool once = cohort::internal::runtime::open_tapes() <= 1;
  bool fits = once && run.steps.is_cuda() && !run.mask.defined() && run.steps.numel() > 0 &&
              (type == kFloat32 || type == kFloat64 || type == kFloat16);
  for (const Tensor& state : run.states) fits = fits && state.scalar_type() == type;
  return fits;
}

Tensor device_lstm(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
                   const Tensor& bias) {
  std::vector<Tensor> weights = {kernel.t().contiguous(), recurrent_kernel.t().contiguous()};
  if (bias.defined()) weights.insert(weights.end(), {bias, at::zeros_like(bias)});
  const Outputs out = run_cudnn(run, kLstm, weights);
  run.states = {out.state, out.carry};
  return output_of(run, out.steps);
}

Tensor device_gru(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
                  const Tensor& bias) {
  std::vector<Tensor> weights = {in_cudnn_order(kernel).t().contiguous(),
                                 in_cudnn_order(recurrent_kernel).t().contiguous()};
  if (bias.defined()) {
    weights.insert(weights.end(), {in_cudnn_order(bias[0]), in_cudnn_order(bias[1])});
  }
  const Outputs out = run_cudnn(run, kGru, weights);
  run.states = {out.state};
  return output_of(run, out.steps);
}

}  // namespace cohort::keras::internal
