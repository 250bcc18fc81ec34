# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers."""

import numpy as np

from layer_cases import L, case, keras

R, C, I = keras.regularizers, keras.constraints, keras.initializers

X = (3, 4, 3)
# Padding behind and between, and a row in which nothing counts; padding behind alone.
MASK = np.array([[True, True, False, False], [False, True, False, True], [False] * 4])
WHOLE = np.array([[True] * 4, [True, False, False, False], [True, True, True, False]])

OPTIONS = dict(
    use_bias=False, kernel_initializer="he_normal", recurrent_initializer=I.GlorotNormal(seed=3),
    kernel_regularizer=R.L2(0.25), recurrent_regularizer=R.L1(0.5), bias_regularizer="l2",
    kernel_constraint=C.MaxNorm(3.0), recurrent_constraint="non_neg", bias_constraint="unit_norm",
    seed=7)



def of(kind, states):
    """Every layer of one cell is used in these ways."""
    layer, name = getattr(L, kind), kind.lower()
    state = [(3, 2)] * states
    return [
        case(f"{name}_options", layer(2, **OPTIONS), X),
        case(f"{name}_state", layer(2, return_sequences=True, return_state=True, unroll=True), X,
             initial_state=state),
        case(f"{name}_masked", layer(2, return_state=True), X, mask=MASK),
        case(f"{name}_backwards", layer(2, return_sequences=True, go_backwards=True), X,
             mask=MASK),
    ]


def with_nodes(kind, states):
    layer, name = getattr(L, kind), kind.lower()
    return [
        case(name, layer(3), X),
        case(f"{name}_masked_zero", layer(2, return_sequences=True, zero_output_for_mask=True), X,
             mask=WHOLE),
        case(f"{name}_wide", layer(5, return_sequences=True), (2, 3, 2), training=True),
    ]


CASES = [
    *of("SimpleRNN", 1), *of("LSTM", 2), *of("GRU", 1),
    *with_nodes("LSTM", 2), *with_nodes("GRU", 1),
    case("simplernn_relu", L.SimpleRNN(3, activation="relu"), X),
    case("lstm_relu", L.LSTM(3, activation="relu", recurrent_activation="hard_sigmoid",
                             unit_forget_bias=False, return_sequences=True), X, mask=MASK),
    case("gru_relu", L.GRU(3, activation="relu", return_sequences=True), X),
    case("gru_before", L.GRU(3, reset_after=False, return_sequences=True), X, mask=MASK),
]
