# SPDX-License-Identifier: Apache-2.0
"""Normalisation of each row by itself; BatchNormalization is in basic.py."""

from layer_cases import L, case

CASES = [
    case("layer_normalization", L.LayerNormalization(), (3, 4)),
    case("layer_normalization_axes", L.LayerNormalization(axis=[1, 2], epsilon=0.25), (2, 3, 4)),
    case("layer_normalization_axis_1", L.LayerNormalization(axis=1, center=False), (2, 3, 4)),
    case("layer_normalization_rms", L.LayerNormalization(rms_scaling=True), (2, 3, 4)),
    case("group_normalization", L.GroupNormalization(groups=2), (2, 3, 4)),
    case("group_normalization_image", L.GroupNormalization(groups=3, scale=False), (2, 2, 3, 6)),
    case("group_normalization_axis_1", L.GroupNormalization(groups=2, axis=1), (2, 4, 3, 2)),
    case("instance_normalization", L.GroupNormalization(groups=-1), (2, 3, 2)),
    case("rms_normalization", L.RMSNormalization(), (2, 3, 4)),
    case("rms_normalization_axes", L.RMSNormalization(axis=[1, 2], epsilon=0.5), (2, 3, 4)),
    case("unit_normalization", L.UnitNormalization(), (2, 3, 4)),
    case("unit_normalization_axes", L.UnitNormalization(axis=[1, 2]), (2, 3, 4)),
]
