# SPDX-License-Identifier: Apache-2.0
"""Places in vocabularies."""

import numpy as np

from layer_cases import L, case

WORDS = np.array([["red", "green", ""], ["blue", "größe", "[UNK]"]])
COLOURS = ["green", "red", "blue"]
NUMBERS = np.array([[3, 5, 0], [-7, 12, 3]], "int64")
SEEN = np.array([["b", "a", "c"], ["a", "b", ""], ["d", "b", "[UNK]"]])
BATCHES = [np.array([["b", "a"], ["a", "z"]]), np.array([["b", "q"]])]
IDF = [0.5, 1.5, 0.25]

CASES = [
    case("string", L.StringLookup(vocabulary=COLOURS), WORDS),
    case("string_mask", L.StringLookup(vocabulary=COLOURS, mask_token=""), WORDS),
    case("string_many_oov", L.StringLookup(vocabulary=COLOURS, num_oov_indices=3), WORDS),
    case("string_salt", L.StringLookup(vocabulary=COLOURS, num_oov_indices=5, salt=[3, 4]), WORDS),
    case("string_special_tokens", L.StringLookup(
        vocabulary=["", "[UNK]", *COLOURS], mask_token=""), WORDS),
    case("string_one_hot", L.StringLookup(vocabulary=COLOURS, output_mode="one_hot"), WORDS),
    case("string_multi_hot", L.StringLookup(
        vocabulary=COLOURS, output_mode="multi_hot", mask_token=""), WORDS),
    case("string_count", L.StringLookup(
        vocabulary=COLOURS, output_mode="count", max_tokens=7, pad_to_max_tokens=True), WORDS),
    case("string_tf_idf", L.StringLookup(
        vocabulary=COLOURS, output_mode="tf_idf", idf_weights=IDF), WORDS),
    case("string_invert", L.StringLookup(vocabulary=COLOURS, invert=True, mask_token="-"),
         np.array([[0, 1, 2], [4, 3, 9]], "int64")),
    case("string_adapt", L.StringLookup(), SEEN, adapt=SEEN),
    case("string_adapt_most", L.StringLookup(max_tokens=3, mask_token=""), SEEN, adapt=SEEN),
    case("string_adapt_flat", L.StringLookup(output_mode="tf_idf"), SEEN,
         adapt=np.array(["x", "b", "x", "a"])),
    case("string_adapt_tf_idf", L.StringLookup(
        output_mode="tf_idf", max_tokens=8, pad_to_max_tokens=True), SEEN, adapt=SEEN),
    case("string_adapt_batches", L.StringLookup(output_mode="tf_idf"), SEEN, adapt=BATCHES),
    case("string_adapt_flat_batches", L.StringLookup(output_mode="tf_idf"), SEEN,
         adapt=[b.reshape(-1) for b in BATCHES]),
    case("integer", L.IntegerLookup(vocabulary=[3, 12]), NUMBERS),
    case("integer_options", L.IntegerLookup(
        vocabulary=[3, 12], num_oov_indices=4, mask_token=0, oov_token=-2), NUMBERS),
    case("integer_farmhash", L.IntegerLookup(
        vocabulary=[3, 12], num_oov_indices=4, oov_method="farmhash", salt=7), NUMBERS),
    case("integer_multi_hot", L.IntegerLookup(vocabulary=[3, 12], output_mode="multi_hot"),
         NUMBERS.astype("int32")),
    case("integer_invert", L.IntegerLookup(vocabulary=[3, 12], invert=True),
         np.array([0, 1, 2, 5], "int64")),
    case("integer_adapt", L.IntegerLookup(max_tokens=4), NUMBERS, adapt=NUMBERS),
]
