#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes functional.json beside this file: functional models of real Keras 3, and what they do.

    VENV/bin/python cohort/keras/golden/write_functional.py      # VENV has keras and tensorflow
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

L, ops = keras.layers, keras.ops


def two_by_two():
    """Two inputs, two outputs, a layer that is called twice."""
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    shared = L.Dense(4, activation="tanh", name="shared")
    of_a = shared(a)
    of_b = shared(L.Dense(3, name="lift")(b))
    price = L.Dense(1, name="price")(of_a)
    sold = L.Activation("sigmoid", name="sold")(L.Dense(2, name="mix")(of_b))
    return keras.Model([a, b], [price, sold], name="two")


def nested():
    i = keras.Input((2,), name="in")
    encoder = keras.Model(i, L.Dense(3, activation="relu", name="hid")(i), name="enc")
    x = keras.Input((2,), name="x")
    return keras.Model(x, L.Dense(1, name="out")(encoder(x)), name="outer")


def masked():
    """A mask that layers hand on, which Keras writes as operations."""
    x = keras.Input((5,), name="tokens")
    y = L.Embedding(7, 3, mask_zero=True, name="words")(x)
    y = L.Dropout(0.5, name="drop")(y)
    y = L.Add(name="twice")([y, L.Bidirectional(L.GRU(3, return_sequences=True),
                                                merge_mode="sum", name="both")(y)])
    z = L.Masking(1.0, name="ones")(L.Reshape((5, 1), name="column")(x))
    sums = L.Add(name="sums")([L.LSTM(2, name="read")(y), L.LSTM(2, name="count")(z)])
    return keras.Model(x, L.Dense(1, name="end")(sums), name="masked")


def operators():
    """Python's operators between tensors, which Keras writes as operations."""
    x = keras.Input((6,), name="x")
    y = L.Reshape((3, 2), name="rows")(x)
    y = 1 - (y * 2 + y[:, :1]) / (abs(y) + 1.5)
    y = y @ L.Permute((2, 1), name="turned")(y) - y[..., -1][:, :, None] ** 2
    y = L.Flatten(name="flat")(-y // 0.25 % 3 + y[:, 0:3:2, None, 1][:, :1])
    return keras.Model(x, L.Dense(2, name="end")(y), name="operators")


def causal():
    """What calls of attention are told."""
    x = keras.Input((8,), name="x")
    y = L.Reshape((4, 2), name="steps")(x)
    y = L.MultiHeadAttention(2, 3, name="heads")(y, y, use_causal_mask=True)
    y = L.Add(name="both")([y, L.Attention(name="dot")([y, y], use_causal_mask=True)])
    return keras.Model(x, L.Dense(2, name="end")(y), name="causal")


def functions():
    """Functions of keras.ops, which are nodes, too."""
    x = keras.Input((6,), name="x")
    y = ops.concatenate([ops.relu(x), ops.tanh(x[:, :2])], axis=-1)
    y = ops.reshape(y, (-1, 4, 2))
    z = ops.softmax(ops.expand_dims(ops.mean(y, axis=1), 1), axis=-1)
    turned = ops.transpose(ops.stack([y[..., 0], ops.exp(-y[..., 1])], axis=1), (0, 2, 1))
    y = ops.maximum(y * z, ops.sigmoid(turned)) - ops.minimum(ops.silu(y), ops.elu(turned))
    y = ops.log(ops.sqrt(ops.square(y) + 1.0)) + ops.softplus(y) - ops.leaky_relu(turned)
    y = ops.where(ops.cast(ops.expand_dims(ops.relu(x[:, 2:]), -1), "bool"), y, 0.5 * y)
    y = ops.gelu(y) + ops.max(y, axis=-1, keepdims=True) * ops.min(y, axis=[1, 2], keepdims=True)
    y = ops.squeeze(ops.sum(ops.log_softmax(y), axis=1, keepdims=True), 1)
    return keras.Model(x, L.Dense(2, name="end")(ops.cast(y, "float32")), name="functions")


def told():
    """Functions beside numbers, along several axes, and of sizes that are known in part."""
    s, k = keras.Input((None, 3), name="s"), keras.Input((16, 3), name="k")
    y = ops.maximum(s, 0.0) - ops.minimum(0.25, ops.divide(k, 2)) + ops.maximum(s, k)
    y = ops.where(ops.greater(k, 0), y, 1) + ops.where(ops.less_equal(s, 0.5), 0, 1) * ops.clip(k, -1, 1)
    y += ops.where(ops.equal(ops.cast(k, "int32"), 0), 0.5, 2) * ops.subtract(1, ops.multiply(y, 0.5))
    z = ops.reshape(ops.tanh(ops.reshape(y, (-1, 3))), (-1, 16, 3))  # into parts
    y = ops.softmax(y, axis=(1, 2)) + ops.log_softmax(z, axis=(2, -2)) * ops.where(s < k, 1.5, k)
    y = ops.squeeze(ops.expand_dims(ops.sum(y, axis=()), (0, -1)), axis=(0, -1))
    y = ops.concatenate([y, s], axis=-1) + ops.max(ops.stack([s, k], axis=1), axis=[], initial=0.1)[:, 0, :, :1]
    y = ops.concatenate([y[..., :3], ops.mean(k, axis=[]), s], axis=1)
    y = ops.max(y, axis=1, initial=0.5) * ops.min(y, axis=[1], initial=-0.25) + ops.sum(y, axis=1)
    return keras.Model([s, k], L.Dense(2, name="end")(y), name="told")


def rounded(values):
    return [np.round(x.astype("float64"), 7).tolist() for x in values]


def train(model, inputs, case):
    model.compile(optimizer=keras.optimizers.SGD(0.1),
                  loss={"price": "mse", "sold": "binary_crossentropy"},
                  loss_weights={"price": 0.5, "sold": 2.0},
                  metrics={"sold": ["accuracy"], "price": ["mae"]})
    labels = {"price": np.array([[1], [0], [2], [-1]], "float32"),
              "sold": np.array([[1, 0], [0, 1], [1, 1], [0, 0]], "float32")}
    history = model.fit(dict(zip(["a", "b"], inputs)), labels, epochs=3, batch_size=4,
                        shuffle=False, verbose=0)
    case["labels"] = {k: v.tolist() for k, v in labels.items()}
    case["history"] = {k: [float(f"{x:.7g}") for x in v] for k, v in history.history.items()}
    case["compiled"] = json.loads(model.to_json())["compile_config"]


def case_of(model):
    draws = np.random.RandomState(3)
    weights = [np.round(draws.randn(*v.shape) * 0.5, 3) for v in model.weights]
    model.set_weights(weights)
    inputs = [np.round(draws.randn(4, *(n or 16 for n in t.shape[1:])), 3).astype("float32")
              for t in model.inputs]
    if model.name == "masked":
        inputs = [draws.randint(0, 3, (4, 5)).astype("float32")]
    outputs = model.predict(inputs if len(inputs) > 1 else inputs[0], verbose=0)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    case = {"config": json.loads(model.to_json()), "weights": rounded(weights),
            "inputs": rounded(inputs), "outputs": rounded(outputs),
            "layers": [layer.name for layer in model.layers]}
    if len(outputs) == 2:
        train(model, inputs, case)
    return case


here = pathlib.Path(__file__).parent
(here / "functional.json").write_text(json.dumps(
    [case_of(two_by_two()), case_of(nested()), case_of(masked()), case_of(operators()),
     case_of(causal()), case_of(functions()), case_of(told())]) + "\n")
