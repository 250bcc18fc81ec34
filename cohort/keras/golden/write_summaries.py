#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes summaries.json beside this file: what summary() of models of real Keras 3 prints.

    VENV/bin/python cohort/keras/golden/write_summaries.py      # VENV has keras and a backend of it

summary_test.cc makes the models of their JSON and compares the whole text.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402

L = keras.layers


def chain():
    """Functional, but as simple as a Sequential."""
    x = keras.Input((28, 28), name="picture")
    y = L.Dense(16, activation="relu", name="hidden")(L.Flatten(name="flat")(x))
    return keras.Model(x, L.Dense(10, name="digits")(y), name="chain")


def two():
    """Two inputs and outputs, a layer that is called twice, one that is frozen, one of one axis."""
    a, b = keras.Input((3,), name="a"), keras.Input((), name="a_number")
    shared = L.Dense(4, activation="tanh", name="shared")
    lift = L.Dense(3, name="lift_the_second_input_to_the_first")
    lift.trainable = False
    of_b = shared(lift(L.Reshape((1,), name="column")(b)))
    both = L.Concatenate(name="both")([shared(a), of_b])
    outputs = [L.Dense(1, name="price")(both), L.Activation("sigmoid", name="sold")(of_b)]
    return keras.Model([a, b], outputs, name="two")


def operators():
    x = keras.Input((6,), name="x")
    y = L.Dense(6, name="first")(x)
    y = L.BatchNormalization(name="normal")(1 - (y * 2 + x[:, :1]) / 1.5)
    return keras.Model(x, L.Dense(2, name="end")(y), name="operators")


def states():
    """A layer of several outputs, of which one goes on twice."""
    x = keras.Input((5, 4), name="words")
    y, h, c = L.LSTM(3, return_sequences=True, return_state=True, name="reader")(x)
    y = L.LSTM(3, name="writer")(y, initial_state=[h, c])
    return keras.Model(x, L.Add(name="sum")([y, h, h]), name="states")


def nested():
    i = keras.Input((2,), name="in")
    pair = L.Add(name="pair")([L.Dense(3, name="left")(i), L.Dense(3, name="right")(i) * 2])
    drawn = keras.Model(i, pair, name="drawn")
    row = keras.Sequential([keras.Input((3,)), L.Dense(2, name="deep"), L.ReLU(name="cut")], name="row")
    row.trainable = False
    x = keras.Input((2,), name="x")
    y = row(drawn(x))
    return keras.Model(x, L.Dense(1, name="out")(L.Add(name="over")([y, x])), name="outer")


def row():
    return keras.Sequential([keras.Input((4,)), L.Dense(3, name="dense"), L.Dropout(0.5, name="drop"),
                             L.LayerNormalization(name="a_layer_with_quite_a_long_name")], name="row")


CASES = [(make, width, options)
         for make in (chain, two, operators, states, nested, row)
         for width, options in ((80, {}), (200, {}), (80, {"show_trainable": True}),
                                (200, {"show_trainable": True, "expand_nested": True}),
                                (61, {"expand_nested": True}))]


def text_of(model, width, options):
    os.environ["COLUMNS"] = str(width)
    said = []
    model.summary(print_fn=lambda text, **_: said.append(text), **options)
    return "\n".join(said)


def main():
    models = {make.__name__: make() for make, _, _ in CASES[::5]}
    golden = {"models": {name: json.loads(model.to_json()) for name, model in models.items()},
              "summaries": [{"model": make.__name__, "columns": width, "options": options,
                             "text": text_of(models[make.__name__], width, options)}
                            for make, width, options in CASES]}
    path = pathlib.Path(__file__).with_name("summaries.json")
    path.write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
