// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of whole batches by the kernels of kernels.h: float32, channels last, one group,
// two axes. Inputs are contiguous and not padded yet.
#pragma once

#include "cohort/keras/layers/internal/windows.h"
#include "cohort/runtime/tensor.h"

namespace cohort::keras::internal {

/// Whether the kernels fit: one intra-op thread, which is all they use, dtype, device, one group,
/// and channels in multiples of kChannelPack.
bool has_own_convolution(const Tensor& x, const Tensor& kernel, int64_t groups);

/// relu?(conv(x, kernel) + bias), fresh; bias may be undefined.
Tensor own_forward(const WindowBox& window, const Tensor& x, const Tensor& kernel,
                   const Tensor& bias, bool relu);

/// What a backward pass reads and writes; undefined outputs are not computed.
struct OwnBackward {
  const WindowBox& window;
  const Tensor& g;
  const Tensor& y;  ///< The output, if the activation was ReLU.
  const Tensor& x;
  const Tensor& kernel;
  Tensor dx = {};
  Tensor kernel_gradient = {};
  Tensor bias_gradient = {};
  bool accumulate_kernel = false;
  bool accumulate_bias = false;
};
void own_backward(OwnBackward& pass);

}  // namespace cohort::keras::internal
