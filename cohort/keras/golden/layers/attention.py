# SPDX-License-Identifier: Apache-2.0
"""Attention."""

import numpy as np

from layer_cases import L, case, keras

R, C, I = keras.regularizers, keras.constraints, keras.initializers

TWO, THREE = [(2, 3, 4), (2, 5, 4)], [(2, 3, 4), (2, 5, 6), (2, 5, 4)]
QUERY = np.array([[True, True, False], [True, False, True]])
VALUE = np.array([[True, True, True, False, False], [False, True, False, True, True]])
SELF = [(2, 4, 6), (2, 4, 6)]
OPTIONS = dict(
    kernel_initializer=I.HeNormal(seed=3), bias_initializer="ones", kernel_regularizer=R.L2(0.25),
    bias_regularizer=R.L1(0.5), kernel_constraint=C.MaxNorm(3.0), bias_constraint="non_neg", seed=7)

CASES = [
    case("attention", L.Attention(), TWO),
    case("attention_key", L.Attention(use_scale=True, seed=3), THREE),
    case("attention_concat", L.Attention(score_mode="concat"), TWO),
    case("attention_concat_scale", L.Attention(score_mode="concat", use_scale=True), THREE),
    case("attention_masked", L.Attention(), TWO, mask=[QUERY, VALUE]),
    case("additive", L.AdditiveAttention(), TWO),
    case("additive_masked", L.AdditiveAttention(use_scale=False), TWO, mask=[QUERY, VALUE]),
    case("heads", L.MultiHeadAttention(2, 3), TWO, spread=True),
    case("heads_key", L.MultiHeadAttention(2, 3, value_dim=5, use_bias=False), THREE, spread=True),
    case("heads_self", L.MultiHeadAttention(3, 2, use_gate=True, **OPTIONS), SELF, spread=True),
    case("heads_output", L.MultiHeadAttention(2, 3, output_shape=(3, 2)), TWO, spread=True),
    case("heads_masked", L.MultiHeadAttention(2, 3), TWO, spread=True, mask=[QUERY, VALUE]),
    case("heads_window", L.MultiHeadAttention(2, 3, sliding_window=2), SELF, spread=True),
    case("heads_dropout", L.MultiHeadAttention(2, 3, dropout=0.5), TWO, spread=True,
         mask=[QUERY, VALUE]),
    case("heads_axes", L.MultiHeadAttention(2, 3, attention_axes=(2,)),
         [(2, 3, 4, 5), (2, 3, 2, 5)], spread=True),
    case("heads_both_axes", L.MultiHeadAttention(2, 3), [(2, 3, 2, 4), (2, 2, 2, 4)],
         spread=True),
    case("groups", L.GroupQueryAttention(3, 4, 2), TWO, spread=True),
    case("groups_all", L.GroupQueryAttention(3, 4, 2, use_gate=True, sliding_window=2, **OPTIONS),
         SELF, spread=True),
    case("groups_masked", L.GroupQueryAttention(2, 2, 1, use_bias=False), TWO, spread=True,
         mask=[QUERY, VALUE]),
]
