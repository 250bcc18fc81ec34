# SPDX-License-Identifier: Apache-2.0
"""Pooling over one to three axes, of windows, of everything, and of as many windows as asked."""

from layer_cases import L, case

CASES = [
    case("max_pooling1d", L.MaxPooling1D(), (2, 5, 3)),
    case("max_pooling1d_same", L.MaxPooling1D(3, strides=2, padding="same"), (2, 6, 2)),
    case("max_pooling2d", L.MaxPooling2D((2, 3), strides=1), (1, 4, 5, 2)),
    case("max_pooling2d_same", L.MaxPooling2D(3, strides=2, padding="same"), (1, 5, 6, 2)),
    case("max_pooling3d", L.MaxPooling3D(2), (1, 4, 5, 3, 2)),
    case("max_pooling3d_same", L.MaxPooling3D((2, 3, 2), strides=2, padding="same"),
         (1, 3, 4, 3, 2)),
    case("average_pooling1d", L.AveragePooling1D(3, strides=1), (2, 5, 3)),
    case("average_pooling1d_same", L.AveragePooling1D(4, strides=3, padding="same"), (2, 6, 2)),
    case("average_pooling2d", L.AveragePooling2D((2, 3)), (1, 4, 6, 2)),
    case("average_pooling2d_same", L.AveragePooling2D(3, strides=2, padding="same"), (1, 4, 5, 2)),
    case("average_pooling3d", L.AveragePooling3D(2), (1, 4, 5, 3, 2)),
    case("average_pooling3d_same", L.AveragePooling3D(2, strides=2, padding="same"),
         (1, 3, 4, 3, 2)),
    case("global_average_pooling1d", L.GlobalAveragePooling1D(), (2, 4, 3)),
    case("global_average_pooling2d", L.GlobalAveragePooling2D(keepdims=True), (2, 3, 2, 3)),
    case("global_average_pooling3d", L.GlobalAveragePooling3D(data_format="channels_first"),
         (1, 2, 3, 2, 2)),
    case("global_max_pooling1d", L.GlobalMaxPooling1D(keepdims=True), (2, 4, 3)),
    case("global_max_pooling2d", L.GlobalMaxPooling2D(), (2, 3, 2, 3)),
    case("global_max_pooling3d", L.GlobalMaxPooling3D(), (1, 2, 3, 2, 2)),
    case("adaptive_average_pooling1d", L.AdaptiveAveragePooling1D(3), (2, 7, 2)),
    case("adaptive_average_pooling2d", L.AdaptiveAveragePooling2D((2, 3)), (1, 5, 6, 2)),
    case("adaptive_average_pooling3d", L.AdaptiveAveragePooling3D(2), (1, 3, 4, 5, 2)),
    case("adaptive_max_pooling1d", L.AdaptiveMaxPooling1D(3), (2, 7, 2)),
    case("adaptive_max_pooling2d", L.AdaptiveMaxPooling2D((2, 3)), (1, 5, 6, 2)),
    case("adaptive_max_pooling3d", L.AdaptiveMaxPooling3D(2), (1, 3, 4, 5, 2)),
]
