// SPDX-License-Identifier: Apache-2.0
//
// LSTM and GRU over a whole sequence, as one autograd node each: the input's product of all steps
// at once, one product a step for the state, and the weights' gradients from all steps at once.
//
//   if (internal::has_recurrent_node(run, kernel_.dtype())) return internal::lstm(run, weights);
#pragma once

#include "cohort/keras/layers/rnn_cells.h"

namespace cohort::keras::internal {

struct RecurrentWeights {
  Variable kernel, recurrent_kernel, bias;  ///< Without a bias an empty handle.
};

/// True for float32 and float64 on a CPU, where the weights have the inputs' type.
bool has_recurrent_node(const SequenceRun& run, DType weights);

/// As RNNCellBase::run, of an LSTMCell with tanh and sigmoid. Shapes: kernel [in, 4 units].
Tensor lstm(SequenceRun& run, const RecurrentWeights& weights);
/// Of a GRUCell with tanh, sigmoid and reset_after. Shapes: kernel [in, 3 units].
Tensor gru(SequenceRun& run, const RecurrentWeights& weights);

}  // namespace cohort::keras::internal
