# SPDX-License-Identifier: Apache-2.0
"""The README's program in Keras: the same network, data, optimizer and batches.

keras_fashion_mnist.py [--epochs 5] [--batch 128] [--seed 1]
"""
import argparse
import gzip
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: E402
import numpy as np  # noqa: E402

FOLDER = "/usr/share/datasets/fashion-mnist"


def find_folder():
    """Where COHORT_DATA or Debian's package keeps the files."""
    for root in (os.environ.get("COHORT_DATA", ""), FOLDER):
        for folder in (os.path.join(root, "fashion-mnist"), root):
            if root and os.path.exists(os.path.join(folder, "train-images-idx3-ubyte.gz")):
                return folder
    raise SystemExit("fashion-mnist is missing: install Debian's dataset-fashion-mnist")


def load(folder, part):
    """Images in [0, 1] and labels."""
    with gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(f"{folder}/{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images.astype("float32") / 255, labels.astype("int64")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    keras.utils.set_random_seed(options.seed)

    folder = find_folder()
    x, y = load(folder, "train")
    test = load(folder, "t10k")
    model = keras.Sequential([
        keras.layers.Input((784,)), keras.layers.Dense(256, activation="relu"),
        keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)])
    model.compile(optimizer=keras.optimizers.Adam(),
                  loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")])
    start = time.perf_counter()
    model.fit(x, y, batch_size=options.batch, epochs=options.epochs, validation_data=test,
              validation_batch_size=1000, verbose=2)
    took = time.perf_counter() - start
    loss, accuracy = model.evaluate(*test, batch_size=1000, verbose=0)
    print(f"test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    print(f"{options.epochs} epochs in {took:.2f} s: {60000 * options.epochs / took:.0f} examples/s")


if __name__ == "__main__":
    main()
