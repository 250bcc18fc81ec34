# SPDX-License-Identifier: Apache-2.0
"""Numbers and categories, before a model sees them."""

import numpy as np

from layer_cases import L, case, integers

random = np.random.default_rng(7)


def drawn(*shape):
    return np.round(3 + 2 * random.standard_normal(shape), 3).astype("float32")


FEATURES, IMAGES, LONG = drawn(9, 3), drawn(4, 2, 3, 2), drawn(500)
IDS = np.array([[0, 2, 2], [4, 1, 0]], "int32")
VALUES = np.array([[-1.0, 0.0], [0.5, 1.0], [3.25, 9.0]], "float32")

CASES = [
    case("normalization", L.Normalization(), (2, 3), adapt=FEATURES, weights="initial"),
    case("normalization_batches", L.Normalization(), (2, 3),
         adapt=[FEATURES[:5], FEATURES[5:6], FEATURES[6:]], weights="initial"),
    case("normalization_axes", L.Normalization(axis=(1, -1)), (3, 2, 3, 2), adapt=IMAGES,
         weights="initial"),
    case("normalization_axis_1", L.Normalization(axis=1), (3, 2, 3, 2), adapt=IMAGES,
         weights="initial"),
    case("normalization_no_axis", L.Normalization(axis=None), (4,), adapt=LONG,
         weights="initial"),
    case("normalization_given", L.Normalization(mean=3.0, variance=4.0), (2, 3)),
    case("normalization_given_each", L.Normalization(mean=[1.0, 2.0], variance=[0.5, 0.0]),
         (3, 1, 2)),
    case("normalization_invert", L.Normalization(mean=3.0, variance=2.0, invert=True), (2, 3)),
    case("normalization_unadapted", L.Normalization(), (2, 3), weights="initial"),
    case("category_multi_hot", L.CategoryEncoding(5), IDS),
    case("category_one_hot", L.CategoryEncoding(5, output_mode="one_hot"), IDS),
    case("category_one_hot_column", L.CategoryEncoding(5, output_mode="one_hot"), IDS[:, :1]),
    case("category_one_hot_flat", L.CategoryEncoding(3, output_mode="one_hot"), IDS[:, 0]),
    case("category_count", L.CategoryEncoding(4, output_mode="count"), IDS),
    case("category_count_rank_3", L.CategoryEncoding(5, output_mode="count"),
         integers((2, 3, 2), 5)),
    case("category_weights", L.CategoryEncoding(5, output_mode="count"),
         [IDS, np.array([[0.5, 1, 2], [3, 0.25, 0]], "float32")], spread=True,
         names=("count_weights",), gradients=False),
    case("discretization", L.Discretization(bin_boundaries=[0.0, 1.0, 2.5]), VALUES),
    case("discretization_one_hot",
         L.Discretization(bin_boundaries=[0.0, 1.0], output_mode="one_hot"), VALUES),
    case("discretization_multi_hot",
         L.Discretization(bin_boundaries=[0.0, 1.0], output_mode="multi_hot"), VALUES),
    case("discretization_count",
         L.Discretization(bin_boundaries=[0.0, 1.0], output_mode="count"), VALUES),
    case("discretization_adapted", L.Discretization(num_bins=4), VALUES, adapt=LONG),
    case("discretization_batches", L.Discretization(num_bins=3, epsilon=0.1), VALUES,
         adapt=[LONG[:100], LONG[100:450], LONG[450:]]),
    case("discretization_few", L.Discretization(num_bins=3), VALUES,
         adapt=np.array([3.0, 1.0, 2.0, 7.0], "float32")),
    case("identity", L.Identity(), (2, 3)),
]
