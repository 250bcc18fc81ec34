// SPDX-License-Identifier: Apache-2.0
//
// What the gates of a recurrent step are put together by, element by element.
//
//   internal::LSTMStep<float> s{.rows = b, .units = u, .gates = gates, .carry = c, ...};
//   internal::lstm_backward(s, d_output, d_carry, d_gates);
#pragma once

#include <cstdint>

namespace cohort::keras::internal {

/// One step of a batch; rows lie one after the other. Shapes: gates [rows, 4 units] of i, f, c, o
/// behind their activations, the others [rows, units].
template <class T>
struct LSTMStep {
  int64_t rows = 0;
  int64_t units = 0;
  const T* gates = nullptr;
  const T* carry = nullptr;       ///< Before the step.
  const T* tanh_carry = nullptr;  ///< Of the carry behind it; for the backward pass.
};

/// f * carry + i * c.
template <class T>
void lstm_carry(const LSTMStep<T>& step, T* out);
/// Of the gradients of the step's state and carry: what comes before the gates' activations, and
/// that of the carry before the step in place of its own.
template <class T>
void lstm_backward(const LSTMStep<T>& step, const T* d_state, T* d_carry, T* d_gates);

/// Shapes: gates [rows, 3 units] of z, r, h behind their activations; inner [rows, units]: the
/// state's product for h before the reset gate.
template <class T>
struct GRUStep {
  int64_t rows = 0;
  int64_t units = 0;
  const T* gates = nullptr;
  const T* inner = nullptr;
  const T* state = nullptr;  ///< Before the step.
};

/// z * state + (1 - z) * h.
template <class T>
void gru_state(const GRUStep<T>& step, T* out);
/// Of the gradient of the new state: what comes before the activations, of the input's product
/// (d_input) and the state's (d_inner); and the state's share by way of z in place of d_state.
template <class T>
void gru_backward(const GRUStep<T>& step, T* d_state, T* d_input, T* d_inner);

}  // namespace cohort::keras::internal
