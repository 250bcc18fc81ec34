#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes text_model.keras and text_model.json: a model of real Keras whose layers have vocabularies.

    VENV/bin/python cohort/keras/golden/write_text_model.py           # VENV: keras and tensorflow
    VENV/bin/python cohort/keras/golden/write_text_model.py --check saved.keras

preprocessing_test.cc opens the model, compares what it predicts, and saves it again where
COHORT_TEXT_MODEL says; --check holds such a file against text_model.json.
"""

import json
import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
L = keras.layers
TEXTS = ["to be or not to be", "That is the question!", "größe", ""]
WORDS = [["red", "blue"], ["green", "red"], ["none", "red"], ["blue", "blue"]]
IDS = [[7, 3], [3, 9], [9, 9], [7, 1]]
NUMBERS = [[1.0, 2.0], [3.5, -1.0], [0.0, 0.25], [2.0, 2.0]]
INPUTS = {"text": np.array(TEXTS)[:, None], "words": np.array(WORDS),
          "ids": np.array(IDS, "int64"), "numbers": np.array(NUMBERS, "float32")}


def make():
    keras.utils.set_random_seed(5)
    text = keras.Input((1,), dtype="string", name="text")
    words = keras.Input((2,), dtype="string", name="words")
    ids = keras.Input((2,), dtype="int64", name="ids")
    numbers = keras.Input((2,), name="numbers")
    sequence = L.TextVectorization(output_sequence_length=4)
    sequence.adapt(np.array(TEXTS))
    bag = L.StringLookup(output_mode="tf_idf", mask_token="green")
    bag.adapt(np.array(WORDS))
    given = L.StringLookup(vocabulary=["red", "green"])
    known = L.IntegerLookup(output_mode="multi_hot", max_tokens=5)
    known.adapt(np.array(IDS))
    scale = L.Normalization()
    scale.adapt(np.array(NUMBERS, "float32"))
    bins = L.Discretization(num_bins=3, output_mode="multi_hot")
    bins.adapt(np.array(NUMBERS, "float32"))
    parts = [
        L.GlobalAveragePooling1D()(L.Embedding(16, 3)(sequence(text))),
        L.Dense(2)(bag(words)), L.Flatten()(L.Embedding(3, 2)(given(words))),
        L.Dense(2)(known(ids)), scale(numbers), L.Dense(2)(bins(numbers)),
        L.CategoryEncoding(4)(L.Hashing(4)(words)),
    ]
    model = keras.Model([text, words, ids, numbers], L.Dense(2)(L.Concatenate()(parts)))
    model.compile("sgd", "mse")
    return model


def predicted(model):
    inputs = [tf.constant(INPUTS[x.name]) for x in model.inputs]
    return np.asarray(model(inputs))


def main():
    if sys.argv[1:2] == ["--check"]:
        golden = json.loads((HERE / "text_model.json").read_text())
        saved = keras.models.load_model(sys.argv[2])
        np.testing.assert_allclose(predicted(saved), golden["predictions"], rtol=1e-5, atol=1e-6)
        print("as in", HERE / "text_model.json")
        return
    model = make()
    model.save(HERE / "text_model.keras")
    golden = {"text": [t for t in TEXTS], "words": [w for row in WORDS for w in row], "ids": IDS,
              "numbers": NUMBERS, "predictions": predicted(model).tolist()}
    (HERE / "text_model.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
