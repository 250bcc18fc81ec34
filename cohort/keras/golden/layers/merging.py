# SPDX-License-Identifier: Apache-2.0
"""Layers of several inputs."""

from layer_cases import L, case

MASKS = [[[True, True, False], [True, False, False]], [[True, False, False], [True, True, False]]]
TWO = [(2, 3, 2), (2, 3, 2)]

CASES = [
    case("add", L.Add(), [(2, 3), (2, 3), (2, 3)]),
    case("add_of_unlike_ranks", L.Add(), [(2, 3, 4), (2, 4)]),
    case("add_masked", L.Add(), TWO, mask=MASKS),
    case("subtract", L.Subtract(), [(2, 3), (2, 1)]),
    case("multiply", L.Multiply(), [(2, 3), (2, 3)]),
    case("multiply_masked", L.Multiply(), TWO, mask=MASKS),
    case("average", L.Average(), [(2, 3), (2, 3), (2, 3)]),
    case("maximum", L.Maximum(), [(2, 3), (2, 3)]),
    case("maximum_masked", L.Maximum(), TWO, mask=MASKS),
    case("minimum", L.Minimum(), [(2, 3), (2, 3), (2, 3)]),
    case("concatenate", L.Concatenate(), [(2, 3, 2), (2, 3, 4)]),
    case("concatenate_axis_1", L.Concatenate(axis=1), [(2, 1, 2), (2, 3, 2)]),
    case("dot_vectors", L.Dot(axes=1), [(3, 4), (3, 4)]),
    case("dot_normalized", L.Dot(axes=-1, normalize=True), [(3, 4), (3, 4)]),
    case("dot_matrices", L.Dot(axes=(2, 1)), [(2, 3, 4), (2, 4, 2)]),
    case("dot_matrix_vector", L.Dot(axes=(1, 1)), [(2, 3, 4), (2, 3)]),
    case("dot_vector_volume", L.Dot(axes=(1, 2)), [(2, 3), (2, 2, 3, 2)]),
]
