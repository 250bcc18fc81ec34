#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes clothes_features.keras for transfer_learning.cc: a small network that Python's Keras has taught
the ten classes of Fashion-MNIST (benchmarks/peers/setup keras makes its environment).

    ~/.cache/cohort/peers/keras/bin/python examples/models/make_clothes_features.py
"""

import gzip
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras  # noqa: E402
import numpy as np  # noqa: E402

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
HERE = pathlib.Path(__file__).parent


def read(name, header, shape):
    with gzip.open(FOLDER / name) as file:
        return np.frombuffer(file.read()[header:], np.uint8).reshape(shape)


def main():
    keras.utils.set_random_seed(1)
    x = read("train-images-idx3-ubyte.gz", 16, (-1, 28, 28, 1)).astype("float32") / 255
    y = read("train-labels-idx1-ubyte.gz", 8, -1).astype("int32")
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((28, 28, 1)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(32, activation="relu", name="features"),
        layers.Dense(10, name="ten_classes"),
    ])
    model.compile(optimizer="adam", metrics=["accuracy"],
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=64, epochs=3, verbose=2)
    # Without the optimizer's state, which nobody needs who does not train on.
    final = keras.Sequential(model.layers)
    final.build((None, 28, 28, 1))
    final.save(HERE / "clothes_features.keras")


if __name__ == "__main__":
    main()
