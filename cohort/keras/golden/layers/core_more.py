# SPDX-License-Identifier: Apache-2.0
"""EinsumDense and ReversibleEmbedding."""

from layer_cases import L, case, integers, keras

C, R = keras.constraints, keras.regularizers

CASES = [
    case("einsum_dense", L.EinsumDense("ab,bc->ac", 4), (3, 5)),
    case("einsum_dense_bias", L.EinsumDense("ab,bc->ac", 4, bias_axes="c", activation="tanh"),
         (3, 5)),
    case("einsum_dense_sequence", L.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d"),
         (2, 3, 5)),
    case("einsum_dense_left", L.EinsumDense("...x,xy->...y", 4, bias_axes="y"), (2, 3, 2, 5)),
    case("einsum_dense_right", L.EinsumDense("ab...,bc->ac...", 4, bias_axes="c"), (2, 5, 3)),
    case("einsum_dense_heads",
         L.EinsumDense("abc,cde->abde", (None, 2, 4), bias_axes="de",
                       kernel_initializer="he_normal"), (2, 3, 5)),
    case("einsum_dense_mixed_axes", L.EinsumDense("abc,dce->aebd", (2, 3, 4), bias_axes="ed"),
         (2, 3, 5)),
    case("einsum_dense_two_in", L.EinsumDense("abc,bcd->ad", 4, kernel_regularizer=R.L2(0.5),
                                              bias_constraint=C.NonNeg()), (2, 3, 5)),
    case("reversible_embedding", L.ReversibleEmbedding(6, 3), integers((2, 4), 6)),
    case("reversible_embedding_untied",
         L.ReversibleEmbedding(6, 3, tie_weights=False, mask_zero=True, reverse_dtype="float32",
                               logit_soft_cap=2.5), integers((2, 4), 6)),
]
