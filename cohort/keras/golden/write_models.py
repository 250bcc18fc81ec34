#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes trained.keras and trained.json beside this file: a model that real Keras has trained and saved,
and what comes of it there.

    VENV/bin/python cohort/keras/golden/write_models.py      # VENV has keras and tensorflow

model_files_test.cc opens it. tests/interop does so with many more, where Keras is at hand.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

L = keras.layers
HERE = pathlib.Path(__file__).resolve().parent


def main():
    model = keras.Sequential([
        keras.Input((3,)), L.Dense(4, activation="relu", kernel_initializer=keras.initializers.GlorotUniform(1)),
        keras.Sequential([L.BatchNormalization(momentum=0.5), L.Dense(3)]), L.Dropout(0.0), L.Dense(2)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x = (np.arange(12).reshape(4, 3) / 12).astype("float32")
    y = np.stack([x.sum(1), x[:, 0]], 1)

    def losses(steps):
        out = []
        for _ in range(steps):
            model.reset_metrics()
            out.append(float(model.train_on_batch(x, y, return_dict=True)["loss"]))
        return out

    losses(3)
    model.save(HERE / "trained.keras")
    numbers = {"x": x.flatten().tolist(), "y": y.flatten().tolist(),
               "predicted": model.predict(x, verbose=0).flatten().tolist(), "losses": losses(3)}
    (HERE / "trained.json").write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
