# SPDX-License-Identifier: Apache-2.0
"""Where sequences begin."""

import numpy as np

from layer_cases import L, case, integers, keras

R, C = keras.regularizers, keras.constraints

CASES = [
    case("embedding", L.Embedding(7, 3), integers((2, 5), 7)),
    case("embedding_options", L.Embedding(
        5, 2, embeddings_initializer="ones", embeddings_regularizer=R.L2(0.25),
        embeddings_constraint=C.NonNeg(), mask_zero=True), integers((3, 4), 5)),
    case("embedding_one_axis", L.Embedding(6, 4), integers((5,), 6)),
    case("masking", L.Masking(), np.array([[[0, 0], [1, 0]], [[0, 2], [0, 0]]], "float32")),
    case("masking_value", L.Masking(mask_value=2.0),
         np.array([[[2, 2], [1, 2]], [[0, 0], [2, 2]]], "float32")),
]
