# SPDX-License-Identifier: Apache-2.0
"""Layers that move, repeat, cut or pad."""

from layer_cases import L, case

CASES = [
    case("permute", L.Permute((3, 1, 2)), (2, 3, 2, 4)),
    case("repeat_vector", L.RepeatVector(3), (2, 4)),
    case("zero_padding1d", L.ZeroPadding1D((1, 2)), (2, 3, 2)),
    case("zero_padding2d", L.ZeroPadding2D(((1, 0), (2, 1))), (1, 2, 3, 2)),
    case("zero_padding2d_channels_first", L.ZeroPadding2D((1, 2), data_format="channels_first"),
         (1, 2, 3, 2)),
    case("zero_padding3d", L.ZeroPadding3D(), (1, 2, 1, 2, 2)),
    case("cropping1d", L.Cropping1D((1, 2)), (2, 5, 2)),
    case("cropping2d", L.Cropping2D(((1, 0), (0, 2))), (1, 3, 4, 2)),
    case("cropping3d", L.Cropping3D(((1, 0), (0, 1), (1, 1)), data_format="channels_first"),
         (1, 2, 2, 3, 4)),
    case("up_sampling1d", L.UpSampling1D(3), (2, 2, 2)),
    case("up_sampling2d", L.UpSampling2D((2, 3)), (1, 2, 2, 2)),
    case("up_sampling2d_bilinear", L.UpSampling2D((2, 3), interpolation="bilinear"),
         (1, 3, 4, 2)),
    case("up_sampling2d_bicubic", L.UpSampling2D(2, interpolation="bicubic"), (1, 4, 5, 1)),
    case("up_sampling2d_channels_first",
         L.UpSampling2D(2, data_format="channels_first", interpolation="bilinear"), (1, 2, 3, 2)),
    case("up_sampling3d", L.UpSampling3D(2), (1, 2, 1, 2, 2)),
]
