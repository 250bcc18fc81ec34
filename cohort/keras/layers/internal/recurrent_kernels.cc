// SPDX-License-Identifier: Apache-2.0
#include "cohort/keras/layers/internal/recurrent_kernels.h"

namespace cohort::keras::internal {

template <class T>
void lstm_carry(const LSTMStep<T>& step, T* out) {
  const int64_t n = step.units;
  for (int64_t row = 0; row < step.rows; ++row) {
    const T* __restrict i = step.gates + row * 4 * n;
    const T* __restrict f = i + n;
    const T* __restrict c = f + n;
    const T* __restrict before = step.carry + row * n;
    T* __restrict to = out + row * n;
    for (int64_t k = 0; k < n; ++k) to[k] = f[k] * before[k] + i[k] * c[k];
  }
}

template <class T>
void lstm_backward(const LSTMStep<T>& step, const T* d_state, T* d_carry, T* d_gates) {
  const int64_t n = step.units;
  for (int64_t row = 0; row < step.rows; ++row) {
    const T* __restrict i = step.gates + row * 4 * n;
    const T* __restrict f = i + n;
    const T* __restrict c = f + n;
    const T* __restrict o = c + n;
    const T* __restrict before = step.carry + row * n;
    const T* __restrict th = step.tanh_carry + row * n;
    const T* __restrict dh = d_state + row * n;
    T* __restrict dc = d_carry + row * n;
    T* __restrict di = d_gates + row * 4 * n;
    T* __restrict df = di + n;
    T* __restrict dg = df + n;
    T* __restrict d_o = dg + n;
    for (int64_t k = 0; k < n; ++k) {
      const T total = dc[k] + dh[k] * o[k] * (1 - th[k] * th[k]);
      di[k] = total * c[k] * i[k] * (1 - i[k]);
      df[k] = total * before[k] * f[k] * (1 - f[k]);
      dg[k] = total * i[k] * (1 - c[k] * c[k]);
      d_o[k] = dh[k] * th[k] * o[k] * (1 - o[k]);
      dc[k] = total * f[k];
    }
  }
}

template <class T>
void gru_state(const GRUStep<T>& step, T* out) {
  const int64_t n = step.units;
  for (int64_t row = 0; row < step.rows; ++row) {
    const T* __restrict z = step.gates + row * 3 * n;
    const T* __restrict h = z + 2 * n;
    const T* __restrict before = step.state + row * n;
    T* __restrict to = out + row * n;
    for (int64_t k = 0; k < n; ++k) to[k] = z[k] * before[k] + (1 - z[k]) * h[k];
  }
}

template <class T>
void gru_backward(const GRUStep<T>& step, T* d_state, T* d_input, T* d_inner) {
  const int64_t n = step.units;
  for (int64_t row = 0; row < step.rows; ++row) {
    const T* __restrict z = step.gates + row * 3 * n;
    const T* __restrict r = z + n;
    const T* __restrict h = r + n;
    const T* __restrict inner = step.inner + row * n;
    const T* __restrict before = step.state + row * n;
    T* __restrict ds = d_state + row * n;
    T* __restrict dx = d_input + row * 3 * n;
    T* __restrict du = d_inner + row * 3 * n;
    for (int64_t k = 0; k < n; ++k) {
      const T dz = ds[k] * (before[k] - h[k]) * z[k] * (1 - z[k]);
      const T dh = ds[k] * (1 - z[k]) * (1 - h[k] * h[k]);
      const T dr = dh * inner[k] * r[k] * (1 - r[k]);
      dx[k] = du[k] = dz;
      dx[n + k] = du[n + k] = dr;
      dx[2 * n + k] = dh;
      du[2 * n + k] = dh * r[k];
      ds[k] = ds[k] * z[k];
    }
  }
}

template void lstm_carry(const LSTMStep<float>&, float*);
template void lstm_carry(const LSTMStep<double>&, double*);
template void lstm_backward(const LSTMStep<float>&, const float*, float*, float*);
template void lstm_backward(const LSTMStep<double>&, const double*, double*, double*);
template void gru_state(const GRUStep<float>&, float*);
template void gru_state(const GRUStep<double>&, double*);
template void gru_backward(const GRUStep<float>&, float*, float*, float*);
template void gru_backward(const GRUStep<double>&, double*, double*, double*);

}  // namespace cohort::keras::internal
