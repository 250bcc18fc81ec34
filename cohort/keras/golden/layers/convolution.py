# SPDX-License-Identifier: Apache-2.0
"""Convolutions over one to three axes."""

from layer_cases import L, case, keras

R, C = keras.regularizers, keras.constraints

CASES = [
    case("conv1d", L.Conv1D(4, 3), (2, 7, 3)),
    case("conv1d_causal", L.Conv1D(3, 3, padding="causal", dilation_rate=2), (2, 7, 2)),
    case("conv1d_same_strided", L.Conv1D(16, 4, strides=3, padding="same", activation="relu"),
         (2, 8, 2)),
    case("conv1d_causal_strided", L.Conv1D(2, 3, strides=2, padding="causal"), (1, 6, 2)),
    case("conv1d_groups", L.Conv1D(4, 2, groups=2, use_bias=False), (2, 5, 4)),
    case("conv2d", L.Conv2D(3, (2, 3)), (2, 5, 6, 2)),
    case("conv2d_same_strided", L.Conv2D(
        16, (2, 3), strides=2, padding="same", activation="relu", kernel_regularizer=R.L2(0.25),
        bias_regularizer=R.L1(0.5), kernel_constraint=C.MaxNorm(3)), (1, 5, 6, 2)),
    case("conv2d_dilated_groups", L.Conv2D(4, 2, dilation_rate=(2, 1), groups=2,
                                           activation="tanh"), (2, 5, 4, 2)),
    case("conv3d", L.Conv3D(3, (2, 3, 2)), (1, 4, 5, 3, 2)),
    case("conv3d_same_strided", L.Conv3D(2, 3, strides=2, padding="same", activation="relu"),
         (1, 4, 5, 3, 2)),
    case("conv3d_dilated", L.Conv3D(2, 2, dilation_rate=2, use_bias=False), (1, 4, 5, 3, 2)),
]
