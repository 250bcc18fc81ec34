#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes configs.json beside this file: what real Keras 3 says of its objects, and of models.

    VENV/bin/python cohort/keras/golden/write_configs.py      # VENV has keras and tensorflow

config_test.cc makes the same objects and compares. Learning rates are numbers that float32 holds,
for Keras keeps them in it.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402

C, I, K, L = keras.constraints, keras.initializers, keras.losses, keras.layers
M, O, R, S = keras.metrics, keras.optimizers, keras.regularizers, keras.optimizers.schedules

OBJECTS = {
    "zeros": I.Zeros(), "ones": I.Ones(), "constant": I.Constant(2.5), "identity": I.Identity(),
    "orthogonal": I.Orthogonal(gain=2.0, seed=3), "random_normal": I.RandomNormal(seed=1),
    "truncated_normal": I.TruncatedNormal(0.5, 0.25), "random_uniform": I.RandomUniform(-1.0, 2.0),
    "variance_scaling": I.VarianceScaling(2.0, "fan_out", "untruncated_normal", seed=7),
    "glorot_uniform": I.GlorotUniform(seed=3), "glorot_normal": I.GlorotNormal(),
    "he_uniform": I.HeUniform(), "he_normal": I.HeNormal(), "lecun_uniform": I.LecunUniform(),
    "lecun_normal": I.LecunNormal(),
    "l1": R.L1(0.5), "l2": R.L2(0.25), "l1_l2": R.L1L2(0.5, 0.125),
    "non_neg": C.NonNeg(), "max_norm": C.MaxNorm(3.0, 1), "unit_norm": C.UnitNorm(1),
    "min_max_norm": C.MinMaxNorm(0.5, 2.0, 0.75, 1),
    "dense": L.Dense(4, name="x"),
    "dense_full": L.Dense(
        4, activation="relu", use_bias=False, kernel_initializer="he_normal",
        bias_initializer=I.Constant(0.5), kernel_regularizer=R.L2(0.25), bias_regularizer=R.L1(0.5),
        kernel_constraint=C.MaxNorm(3), bias_constraint="non_neg", name="x", trainable=False,
        dtype="float64"),
    "conv2d": L.Conv2D(8, (3, 5), name="x"),
    "conv2d_full": L.Conv2D(8, 3, strides=2, padding="same", data_format="channels_first",
                            groups=2, activation="softmax", use_bias=False, name="x"),
    "flatten": L.Flatten(name="x"), "reshape": L.Reshape((2, -1), name="x"),
    "activation": L.Activation("tanh", name="x"),
    "re_lu": L.ReLU(max_value=6.0, negative_slope=0.25, threshold=0.5, name="x"),
    "re_lu_default": L.ReLU(name="x"), "softmax": L.Softmax(1, name="x"),
    "dropout": L.Dropout(0.5, name="x"),
    "dropout_full": L.Dropout(0.25, noise_shape=(None, 1, 3), seed=5, name="x"),
    "rescaling": L.Rescaling(0.5, offset=-1.0, name="x"),
    "input_layer": L.InputLayer((3, 4), name="x"),
    "input_layer_batch": L.InputLayer((3,), batch_size=7, dtype="int32", name="x"),
    "batch_normalization": L.BatchNormalization(name="x"),
    "batch_normalization_full": L.BatchNormalization(
        axis=1, momentum=0.5, epsilon=0.25, center=False, scale=False, gamma_regularizer=R.L2(0.25),
        name="x"),
    "max_pooling2d": L.MaxPooling2D(name="x"),
    "max_pooling2d_full": L.MaxPooling2D((3, 2), strides=1, padding="same", name="x"),
    "average_pooling2d": L.AveragePooling2D((2, 2), data_format="channels_first", name="x"),
    "global_average_pooling2d": L.GlobalAveragePooling2D(keepdims=True, name="x"),
    "sparse_categorical_crossentropy": K.SparseCategoricalCrossentropy(from_logits=True),
    "categorical_crossentropy": K.CategoricalCrossentropy(label_smoothing=0.125),
    "binary_crossentropy": K.BinaryCrossentropy(reduction="sum"),
    "mean_squared_error_loss": K.MeanSquaredError(name="x"),
    "mean_absolute_error_loss": K.MeanAbsoluteError(), "huber": K.Huber(),
    "mean": M.Mean(), "sum": M.Sum(name="x"), "accuracy": M.Accuracy(),
    "binary_accuracy": M.BinaryAccuracy(threshold=0.25),
    "categorical_accuracy": M.CategoricalAccuracy(),
    "sparse_categorical_accuracy": M.SparseCategoricalAccuracy(name="x"),
    "top_k": M.TopKCategoricalAccuracy(k=3), "sparse_top_k": M.SparseTopKCategoricalAccuracy(),
    "mean_squared_error": M.MeanSquaredError(), "mean_absolute_error": M.MeanAbsoluteError(),
    "exponential_decay": S.ExponentialDecay(0.5, 10, 0.25, staircase=True),
    "inverse_time_decay": S.InverseTimeDecay(0.5, 10, 0.25),
    "piecewise": S.PiecewiseConstantDecay([1, 2], [0.5, 0.25, 0.125]),
    "polynomial_decay": S.PolynomialDecay(0.5, 10, 0.125, 2.0, True),
    "cosine_decay": S.CosineDecay(0.5, 10, alpha=0.25, warmup_target=0.75, warmup_steps=3),
    "sgd": O.SGD(0.25, momentum=0.5, nesterov=True, name="x"),
    "adam": O.Adam(0.25, amsgrad=True, clipnorm=1.0, use_ema=True, ema_overwrite_frequency=5,
                   gradient_accumulation_steps=4, name="x"),
    "adam_schedule": O.Adam(S.CosineDecay(0.5, 10), name="x"),
    "adam_w": O.AdamW(0.25, name="x"), "rmsprop": O.RMSprop(0.25, centered=True, name="x"),
    "adagrad": O.Adagrad(0.25, name="x"), "adadelta": O.Adadelta(0.25, name="x"),
    "adamax": O.Adamax(0.25, clipvalue=0.5, name="x"), "nadam": O.Nadam(0.25, name="x"),
    "ftrl": O.Ftrl(0.25, beta=0.5, name="x"), "lion": O.Lion(0.25, global_clipnorm=2.0, name="x"),
}


def models():
    declared = keras.Sequential([
        L.InputLayer((8, 8, 3), name="in"), L.Rescaling(0.5, name="a"), L.Conv2D(4, 3, name="b"),
        L.BatchNormalization(name="c"), L.MaxPooling2D(name="d"), L.Dropout(0.5, name="e"),
        L.Flatten(name="f"), L.Dense(10, activation="softmax", name="g")], name="net")
    declared.compile(O.Adam(0.25, name="o"), "sparse_categorical_crossentropy",
                     metrics=["accuracy"], weighted_metrics=[M.SparseCategoricalAccuracy(name="w")],
                     steps_per_execution=2, jit_compile=False)
    yield "model", declared
    yield "model_unbuilt", keras.Sequential([L.Flatten(name="f"), L.Dense(3, name="g")], name="net")
    inner = keras.Sequential([L.Dense(4, name="a")], name="inner")
    yield "model_nested", keras.Sequential(
        [L.InputLayer((6,), name="in"), inner, L.Dense(2, name="b")], name="net")


def main():
    golden = {name: keras.saving.serialize_keras_object(o) for name, o in OBJECTS.items()}
    golden.update((name, json.loads(model.to_json())) for name, model in models())
    lines = [f"{json.dumps(name)}: {json.dumps(config)}" for name, config in golden.items()]
    path = pathlib.Path(__file__).resolve().parent / "configs.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
