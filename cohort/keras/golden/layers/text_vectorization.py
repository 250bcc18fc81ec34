# SPDX-License-Identifier: Apache-2.0
"""Texts as numbers of their words."""

import numpy as np

from layer_cases import L, case

TEXTS = np.array([["To be, or NOT to be!"], ["\tThat's the   question: [UNK]"], [""],
                  ["ÄRGER über größe"]])
SEEN = np.array(["to be or not to be", "be that as it may", "the question", "größe"])
WORDS = ["be", "to", "the", "question"]
V = L.TextVectorization

CASES = [
    case("given", V(vocabulary=WORDS), TEXTS),
    case("flat", V(vocabulary=WORDS, output_sequence_length=3), TEXTS[:, 0]),
    case("longer", V(vocabulary=WORDS, output_sequence_length=9), TEXTS),
    case("adapt", V(), TEXTS, adapt=SEEN),
    case("adapt_most", V(max_tokens=5, output_sequence_length=4), TEXTS, adapt=SEEN[:, None]),
    case("adapt_batches", V(output_mode="tf_idf"), TEXTS, adapt=[SEEN[:3], SEEN[3:]]),
    case("lower", V(vocabulary=WORDS, standardize="lower"), TEXTS),
    case("strip", V(vocabulary=WORDS, standardize="strip_punctuation"), TEXTS),
    case("as_it_is", V(vocabulary=WORDS + ["[UNK]:"], standardize=None), TEXTS),
    case("character", V(split="character"), TEXTS, adapt=SEEN),
    case("ngrams", V(ngrams=2), TEXTS, adapt=SEEN),
    case("ngrams_each", V(ngrams=(1, 3), output_mode="count"), TEXTS, adapt=SEEN),
    case("no_split", V(split=None, vocabulary=["tobe"], standardize="lower"),
         np.array(["ToBe", "be"])),
    case("no_split_length", V(split=None, vocabulary=WORDS, output_sequence_length=3),
         np.array([["to", "be"], ["the", "x"]])),
    case("multi_hot", V(output_mode="multi_hot"), TEXTS, adapt=SEEN),
    case("count_padded", V(output_mode="count", max_tokens=20, pad_to_max_tokens=True), TEXTS,
         adapt=SEEN),
    case("tf_idf", V(output_mode="tf_idf", vocabulary=WORDS, idf_weights=[0.5, 1.0, 2.0, 0.25]),
         TEXTS),
]
