# SPDX-License-Identifier: Apache-2.0
"""Cells, and what goes over sequences with them."""

import numpy as np

from layer_cases import L, case

X = (3, 4, 3)
# Padding behind and between, and a row in which nothing counts; padding behind alone.
MASK = np.array([[True, True, False, False], [False, True, False, True], [False] * 4])
WHOLE = np.array([[True] * 4, [True, False, False, False], [True, True, True, False]])

CASES = [
    case("lstm_cell", L.LSTMCell(2), [(3, 4), [(3, 2), (3, 2)]], spread=True),
    case("gru_cell", L.GRUCell(2, reset_after=False), [(3, 4), [(3, 2)]], spread=True),
    case("simple_rnn_cell", L.SimpleRNNCell(2), [(3, 4), [(3, 2)]], spread=True),
    case("simple", L.RNN(L.SimpleRNNCell(2, name="c"), return_sequences=True), X),
    case("lstm", L.RNN(L.LSTMCell(2, name="c"), return_state=True), X, mask=MASK),
    case("gru", L.RNN(L.GRUCell(2, name="c"), go_backwards=True, zero_output_for_mask=True,
                      return_sequences=True), X, mask=WHOLE),
    case("stacked", L.RNN([L.LSTMCell(3, name="a"), L.GRUCell(2, name="b")],
                          return_sequences=True), X),
    case("stacked_masked", L.RNN([L.LSTMCell(3, name="a"), L.LSTMCell(2, name="b")],
                                 return_state=True), X, mask=MASK),
    case("stacked_state", L.RNN([L.GRUCell(3, name="a"), L.SimpleRNNCell(2, name="b")],
                                return_state=True, return_sequences=True), X),
]
