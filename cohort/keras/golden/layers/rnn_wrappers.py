# SPDX-License-Identifier: Apache-2.0
"""Layers around layers, over sequences."""

import numpy as np

from layer_cases import L, case

X = (2, 4, 3)
MASK = np.array([[True, True, False, False], [True, False, True, True]])

CASES = [
    case("both", L.Bidirectional(L.LSTM(2, name="a")), X),
    case("both_sequences", L.Bidirectional(L.GRU(2, return_sequences=True, name="a"),
                                           merge_mode="sum"), X, mask=MASK),
    case("both_states", L.Bidirectional(L.LSTM(2, return_state=True, name="a"),
                                        merge_mode="ave"), X, initial_state=[(2, 2)] * 4),
    case("both_apart", L.Bidirectional(L.SimpleRNN(2, return_sequences=True, name="a"),
                                       merge_mode=None), X),
    case("both_given", L.Bidirectional(
        L.LSTM(2, name="a"), merge_mode="mul",
        backward_layer=L.LSTM(2, activation="relu", go_backwards=True, name="b")), X),
    case("steps", L.TimeDistributed(L.Dense(2, activation="relu", name="a")), X),
    case("steps_of_images", L.TimeDistributed(L.Conv2D(2, 2, name="a")), (2, 2, 3, 3, 1)),
    case("steps_with_statistics", L.TimeDistributed(L.BatchNormalization(name="a")), X,
         training=True, tolerance=1e-4),
]
