#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizers.json beside this file: what real Keras 3 makes of weights, step by step.

    VENV/bin/python cohort/keras/golden/write_optimizers.py      # VENV has keras and tensorflow

golden_training_test.cc makes the same optimizers, schedules and regularizers of the configs.
Learning rates are numbers that float32 holds, for Keras keeps them in it.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402

O, R, S = keras.optimizers, keras.regularizers, keras.optimizers.schedules
RNG = np.random.default_rng(3)
STEPS = 4
SHAPES = {"layer/kernel": (3, 4), "layer/bias": (4,), "table/embeddings": (5, 2),
          "filters": (2, 3, 2)}

OPTIMIZERS = [
    O.Lamb(0.125, name="x"), O.Lamb(0.125, weight_decay=0.25, clipnorm=1.0, name="x"),
    O.Adafactor(0.125, name="x"),
    O.Adafactor(0.5, relative_step=False, clip_threshold=0.5, global_clipnorm=1.0, name="x"),
    O.Adafactor(S.CosineDecay(0.125, 10), name="x"),
    O.Muon(0.125, name="x"),
    O.Muon(0.125, nesterov=False, ns_steps=3, rms_rate=None, adam_lr_ratio=0.5, weight_decay=None,
           adam_weight_decay=None, exclude_embeddings=False, clipvalue=0.5, name="x"),
    O.Muon(0.125, exclude_layers=["kernel"], name="x"),
]
# Of float16 and bfloat16, whose numbers the constants are: Keras rounds these, too, where Cohort
# computes with them in float32, so that bfloat16's beta_2 of 0.999 would be 1.
NARROW = [
    lambda: O.SGD(0.125, name="x"), lambda: O.SGD(0.125, momentum=0.875, nesterov=True, weight_decay=0.125, name="x"),
    lambda: O.Adam(0.0625, beta_1=0.875, beta_2=0.96875, name="x"),
    lambda: O.AdamW(0.0625, beta_1=0.875, beta_2=0.96875, weight_decay=0.125, clipvalue=0.5, name="x"),
    lambda: O.RMSprop(0.0625, rho=0.875, momentum=0.5, name="x"), lambda: O.Adagrad(0.25, name="x"),
    lambda: O.Adadelta(1.0, rho=0.875, name="x"), lambda: O.Adamax(0.0625, beta_1=0.875, beta_2=0.96875, name="x"),
    lambda: O.Nadam(0.0625, beta_1=0.875, beta_2=0.96875, name="x"),
    lambda: O.Lion(0.0625, beta_1=0.875, beta_2=0.96875, global_clipnorm=1.0, name="x"),
    lambda: O.SGD(0.125, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2, name="x"),
    lambda: O.SGD(0.25, gradient_accumulation_steps=2, name="x"),
]
SCHEDULES = [
    S.CosineDecayRestarts(0.5, 10), S.CosineDecayRestarts(0.5, 4, t_mul=1.0, m_mul=0.5, alpha=0.25),
    S.CosineDecayRestarts(0.25, 3, t_mul=1.5, m_mul=0.75),
]
REGULARIZERS = [R.OrthogonalRegularizer(0.5), R.OrthogonalRegularizer(0.25, mode="columns")]


def numbers(x):
    x = np.asarray(x, "float32")
    return {"shape": list(x.shape), "dtype": "float32",
            "data": [float(f"{v:.9g}") for v in x.reshape(-1).tolist()]}


def optimizer_record(optimizer, dtype="float32", rng=RNG):
    start = {n: np.round(rng.normal(size=s), 3) for n, s in SHAPES.items()}
    variables = [keras.Variable(w, name=n.replace("/", "_"), dtype=dtype)
                 for n, w in start.items()]
    steps = []
    for _ in range(STEPS):
        gradients = [np.round(rng.normal(size=s), 3).astype("float32") for s in SHAPES.values()]
        optimizer.apply([keras.ops.convert_to_tensor(g, dtype=dtype) for g in gradients], variables)
        steps.append({"gradients": [numbers(g) for g in gradients],
                      "weights": [numbers(v.numpy()) for v in variables]})
    return {"config": keras.saving.serialize_keras_object(optimizer), "names": list(SHAPES),
            "start": [numbers(w) for w in start.values()], "steps": steps,
            **({} if dtype == "float32" else {"dtype": dtype})}


def regularizer_record(regularizer):
    weight = np.round(RNG.normal(size=(3, 4)), 3).astype("float32")
    config = keras.saving.serialize_keras_object(regularizer)
    return {"config": config, "weight": numbers(weight), "value": float(regularizer(keras.ops.convert_to_tensor(weight)))}


def main():
    golden = {
        "optimizers": [optimizer_record(o) for o in OPTIMIZERS],
        "narrow": [optimizer_record(make(), dtype, np.random.default_rng(4))
                   for dtype in ("float16", "bfloat16") for make in NARROW],
        "schedules": [{"config": keras.saving.serialize_keras_object(s),
                       "rates": [float(f"{float(s(i)):.9g}") for i in range(30)]}
                      for s in SCHEDULES],
        "regularizers": [regularizer_record(r) for r in REGULARIZERS],
    }
    path = pathlib.Path(__file__).resolve().parent / "optimizers.json"
    path.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
