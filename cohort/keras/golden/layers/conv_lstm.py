# SPDX-License-Identifier: Apache-2.0
"""LSTMs of convolutions."""

import numpy as np

from layer_cases import L, case

MASK = np.array([[True, False, True], [False, True, False]])

CASES = [
    case("one", L.ConvLSTM1D(2, 3), (2, 3, 5, 2)),
    case("one_same", L.ConvLSTM1D(2, 2, strides=2, padding="same", return_sequences=True,
                                  return_state=True), (2, 3, 5, 2), mask=MASK),
    case("two", L.ConvLSTM2D(2, (2, 3), padding="same", return_sequences=True,
                             go_backwards=True), (2, 2, 3, 4, 1)),
    case("two_dilated", L.ConvLSTM2D(1, 2, dilation_rate=(2, 1), activation="relu",
                                     recurrent_activation="hard_sigmoid", use_bias=False),
         (2, 2, 4, 3, 2)),
    case("three", L.ConvLSTM3D(1, 2, unit_forget_bias=False), (1, 2, 3, 2, 3, 2)),
]
