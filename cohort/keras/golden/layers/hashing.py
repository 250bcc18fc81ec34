# SPDX-License-Identifier: Apache-2.0
"""Categories without a vocabulary: of all lengths that FarmHash treats in its own way."""

import numpy as np

from layer_cases import L, case

TEXT = "The quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. " * 3
WORDS = np.array([TEXT[:n] for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63,
                                     64, 65, 100, 127, 128, 129, 200)] + ["größe", "日本"])
NUMBERS = np.array([[0, -1], [7, 123456789], [-2147483648, 10]], "int64")
TOWNS = np.array(["Ulm", "Bern", "Graz", ""])
HOURS = np.array([1, 23, -4, 7], "int64")

CASES = [
    case("farmhash", L.Hashing(1 << 30), WORDS),
    case("siphash", L.Hashing(1 << 30, salt=[133, 137]), WORDS),
    case("siphash_one_salt", L.Hashing(1000, salt=-5), WORDS[:, None]),
    case("mask", L.Hashing(5, mask_value=""), WORDS),
    case("numbers", L.Hashing(100), NUMBERS),
    case("numbers_mask", L.Hashing(7, mask_value=7), NUMBERS),
    case("numbers_salt", L.Hashing(50, salt=3), NUMBERS.astype("int32")),
    case("floats", L.Hashing(100), np.array([[1.75], [-3.5]], "float32")),
    case("one_bin", L.Hashing(1, mask_value=""), TOWNS),
    case("one_hot", L.Hashing(4, output_mode="one_hot"), TOWNS[:, None]),
    case("multi_hot", L.Hashing(4, output_mode="multi_hot"), TOWNS.reshape(2, 2)),
    case("count", L.Hashing(3, output_mode="count"), TOWNS.reshape(2, 2)),
    case("int32", L.Hashing(100, dtype="int32"), TOWNS),
    case("crossing", L.HashedCrossing(1000), [TOWNS, HOURS]),
    case("crossing_columns", L.HashedCrossing(1 << 40), [TOWNS[:, None], HOURS[:, None]]),
    case("crossing_three", L.HashedCrossing(99), [HOURS, TOWNS, HOURS + 1]),
    case("crossing_one_hot", L.HashedCrossing(5, output_mode="one_hot"), [TOWNS, HOURS]),
]
