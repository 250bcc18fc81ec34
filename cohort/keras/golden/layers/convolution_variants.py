# SPDX-License-Identifier: Apache-2.0
"""Transposed, depthwise and separable convolutions."""

from layer_cases import L, case

CASES = [
    case("conv1d_transpose", L.Conv1DTranspose(3, 3), (2, 4, 2)),
    case("conv1d_transpose_same", L.Conv1DTranspose(3, 4, strides=3, padding="same"), (2, 4, 2)),
    case("conv2d_transpose", L.Conv2DTranspose(2, (2, 3), strides=(3, 2), activation="relu"),
         (1, 3, 4, 3)),
    case("conv2d_transpose_same", L.Conv2DTranspose(3, 3, strides=2, padding="same"),
         (2, 3, 2, 2)),
    case("conv2d_transpose_same_padded", L.Conv2DTranspose(
        2, 4, strides=(3, 2), padding="same", output_padding=(2, 1)), (1, 3, 2, 2)),
    case("conv2d_transpose_padded", L.Conv2DTranspose(
        2, 2, strides=3, output_padding=(2, 1), use_bias=False), (1, 3, 2, 2)),
    case("conv2d_transpose_small_window", L.Conv2DTranspose(2, 1, strides=2, padding="same"),
         (1, 2, 3, 2)),
    case("conv3d_transpose", L.Conv3DTranspose(2, 2, strides=2), (1, 2, 2, 3, 2)),
    case("conv3d_transpose_same", L.Conv3DTranspose(2, 3, strides=2, padding="same"),
         (1, 2, 2, 2, 2)),
    case("depthwise_conv1d", L.DepthwiseConv1D(3, depth_multiplier=2, padding="same"), (2, 5, 3)),
    case("depthwise_conv2d", L.DepthwiseConv2D((2, 3), depth_multiplier=2, activation="relu"),
         (2, 4, 5, 3)),
    case("depthwise_conv2d_same_strided", L.DepthwiseConv2D(
        3, strides=2, padding="same", use_bias=False), (1, 5, 6, 4)),
    case("depthwise_conv2d_dilated", L.DepthwiseConv2D(2, dilation_rate=2), (1, 5, 5, 2)),
    case("separable_conv1d", L.SeparableConv1D(4, 3, depth_multiplier=2), (2, 6, 3)),
    case("separable_conv2d", L.SeparableConv2D(4, 3, padding="same", activation="relu"),
         (1, 5, 4, 3)),
    case("separable_conv2d_strided", L.SeparableConv2D(
        2, (2, 2), strides=2, depth_multiplier=2, use_bias=False), (1, 5, 4, 3)),
]
