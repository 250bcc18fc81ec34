// SPDX-License-Identifier: Apache-2.0
//
// LSTM and GRU over whole sequences by cuDNN, recorded by LibTorch.
#pragma once

#include "cohort/keras/layers/rnn_cells.h"

namespace cohort::keras::internal {

/// Whether cuDNN fits: a CUDA device, a type that it has, and no mask.
bool has_device_recurrence(const SequenceRun& run);

/// Of Keras's weights; bias may be undefined. Replaces the states.
Tensor device_lstm(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
                   const Tensor& bias);
/// The same with reset_after: bias is [2, 3 units].
Tensor device_gru(SequenceRun& run, const Tensor& kernel, const Tensor& recurrent_kernel,
                  const Tensor& bias);

}  // namespace cohort::keras::internal
