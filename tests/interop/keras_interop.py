#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds Cohort's files of models against real Keras, both ways; run.py calls it.

    KERAS_PYTHON keras_interop.py PROGRAM PREDICT_PROGRAM FOLDER [CASE...]

Keras makes models, trains them a little and saves them. PROGRAM (keras_interop_program) opens them,
predicts, saves and exports them again, trains on, and makes models of its own. Keras opens what it
saved: without any warning, with the same predictions, and it trains on with the same losses. What was
exported it opens, too, and so does PREDICT_PROGRAM, which knows nothing of training. Some models are not
trained (zoo.UNTRAINED). The zoo (zoo.py) and those here have every layer of Keras's index
and of Cohort's. With cases, only these.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import warnings

os.environ["KERAS_BACKEND"] = os.environ.get("COHORT_KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiling takes longer than running
# What JAX compiles for one model and step, it has for the others: its loops are new functions each time.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(sys.argv[3], "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import zoo  # noqa: E402

C, I, K, L = keras.constraints, keras.initializers, keras.losses, keras.layers
O, R, S = keras.optimizers, keras.regularizers, keras.optimizers.schedules

ROWS, STEPS = 8, 3
COHORT_KERAS = pathlib.Path(__file__).resolve().parents[2] / "cohort" / "keras"


def mlp(optimizer, **compile_options):
    model = keras.Sequential([
        keras.Input((4,)),
        L.Dense(5, activation="tanh", kernel_initializer=I.GlorotUniform(seed=1)),
        L.Dense(3, kernel_initializer=I.GlorotUniform(seed=2)),
    ])
    model.compile(optimizer, compile_options.pop("loss", "mse"), **compile_options)
    return model


def regularized():
    model = keras.Sequential([
        keras.Input((4,)),
        L.Dense(5, activation="relu", kernel_regularizer=R.L2(0.01), bias_initializer="ones",
                kernel_constraint=C.MaxNorm(1.0), kernel_initializer=I.HeNormal(seed=1)),
        L.Dense(3, use_bias=False, bias_constraint="non_neg", activation="softmax",
                kernel_initializer=I.Orthogonal(seed=2)),
    ], name="regularized")
    model.compile(O.SGD(0.1, momentum=0.9), K.Huber(), metrics=["mae"])
    return model


def nested():
    inner = keras.Sequential([L.Dense(4, activation="gelu"), L.BatchNormalization(momentum=0.5)])
    model = keras.Sequential([
        keras.Input((4,)), L.Rescaling(0.5, offset=0.1), L.Dense(6), inner, L.Reshape((2, 2)),
        L.Flatten(), L.Activation("sigmoid"), L.Dense(3)])
    model.compile("adam", "mae")
    return model


def cnn():
    model = keras.Sequential([
        keras.Input((8, 8, 2)), L.Conv2D(3, 3, padding="same", kernel_initializer=I.HeUniform(3)),
        L.BatchNormalization(momentum=0.9), L.ReLU(max_value=2.0, negative_slope=0.1),
        L.MaxPooling2D(), L.Conv2D(4, (2, 3), strides=(1, 2), groups=1, activation="relu"),
        L.AveragePooling2D((2, 1)), L.Dropout(0.0), L.GlobalAveragePooling2D(),
        L.Dense(3), L.Softmax()])
    model.compile(O.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def text():
    model = keras.Sequential([
        keras.Input((5,), dtype="int32"), L.Embedding(10, 4, mask_zero=True),
        L.Bidirectional(L.LSTM(3, return_sequences=True)), L.TimeDistributed(L.Dense(4)), L.GRU(3),
        L.Dense(3)])
    model.compile(O.Adam(0.01), "mse")
    return model


def attention():
    x = keras.Input((5, 4), name="sequence")
    y = L.MultiHeadAttention(2, 3)(x, x)
    y = L.LayerNormalization()(L.Add()([x, y]))
    dense = L.Dense(4, activation="relu")
    y = L.Concatenate()([dense(y), dense(x), L.Conv1D(2, 3, padding="causal")(y)])
    y = L.GroupQueryAttention(3, 4, 2)(y, y)
    model = keras.Model(x, L.Dense(3)(L.GlobalAveragePooling1D()(y)))
    model.compile(O.Adam(0.01), "mse")
    return model


def operators():
    x = keras.Input((3, 4), name="parts")
    y = L.Dense(4, activation="tanh")(1 - (x + x[:, :1]) * 2 / 3.5)
    y = abs(y) ** 2 - y @ L.Permute((2, 1))(L.Dense(4)(y)) @ y[:, None, :, 1][:, 0, :, None]
    model = keras.Model(x, L.Dense(3)(-y[:, -1]))
    model.compile(O.SGD(0.01), "mse")
    return model


def causal():
    x = keras.Input((5, 4), name="sequence")
    y = L.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
    y = L.Attention()([y, x], use_causal_mask=True)
    y = L.GroupQueryAttention(3, 4, 2)(y, y, use_causal_mask=True)
    model = keras.Model(x, L.Dense(3)(y[:, 2] + L.GlobalAveragePooling1D()(y)))
    model.compile(O.Adam(0.01), "mse")
    return model


def images():
    model = keras.Sequential([
        keras.Input((6, 6, 2)), L.ZeroPadding2D(1), L.DepthwiseConv2D(3, depth_multiplier=2), L.PReLU(),
        L.SeparableConv2D(4, 3, padding="same"), L.GroupNormalization(2), L.LeakyReLU(),
        L.Conv2DTranspose(3, 2, strides=2), L.UpSampling2D(2), L.Cropping2D(2),
        L.SpatialDropout2D(0.0), L.RMSNormalization(), L.GlobalMaxPooling2D(), L.Dense(3)])
    model.compile(O.SGD(0.01, momentum=0.9), K.LogCosh(), metrics=["mse", "cosine_similarity"])
    return model


def frozen():
    model = mlp(O.SGD(0.1, momentum=0.9))
    model.layers[0].trainable = False
    model.compile(O.Adam(0.01), "mse")
    return model


def cases():
    """name: the model, compiled. Of the same weights in each run."""
    keras.utils.set_random_seed(1)
    decay = S.ExponentialDecay(0.1, 2, 0.5)
    optimizers = {
        "sgd": O.SGD(0.1), "momentum": O.SGD(0.1, momentum=0.9),
        "nesterov": O.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        "adam": O.Adam(0.01), "amsgrad": O.Adam(0.01, amsgrad=True, clipnorm=1.0),
        "adamw": O.AdamW(0.01), "rmsprop": O.RMSprop(0.01),
        "rmsprop_all": O.RMSprop(0.01, momentum=0.5, centered=True), "adagrad": O.Adagrad(0.1),
        "adadelta": O.Adadelta(0.1), "adamax": O.Adamax(0.01), "nadam": O.Nadam(0.01),
        "ftrl": O.Ftrl(0.1), "lion": O.Lion(0.01),
        "averages": O.Adam(0.01, use_ema=True, ema_momentum=0.5),
        "accumulation": O.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
        "schedule": O.Adam(decay), "lamb": O.Lamb(0.01),
        "muon": O.Muon(0.01), "adafactor": O.Adafactor(0.01),
    }
    models = {name: mlp(optimizer) for name, optimizer in optimizers.items()}
    models |= {"regularized": regularized(), "nested": nested(), "cnn": cnn(), "frozen": frozen(),
               "text": text(), "attention": attention(), "images": images(),
               "operators": operators(), "causal": causal()}
    return models | zoo.models()


def layers_in(config):
    """The names of the classes of keras.layers that a config has, at any depth."""
    if isinstance(config, list):
        return set().union(*map(layers_in, config))
    if not isinstance(config, dict):
        return set()
    found = set().union(*map(layers_in, config.values()))
    return found | {config["class_name"]} if config.get("module") == "keras.layers" else found


def registered_layers():
    """The names in Cohort's table of layers."""
    text = (COHORT_KERAS / "layers" / "builtin.cc").read_text()
    found = re.findall(r'add_builtin<(\w+)>\((?:"(\w+)")?\)', text)
    return {name or kind.removesuffix("Layer") for kind, name in found}


def check_every_layer_is_used(models):
    index = json.loads((COHORT_KERAS / "golden" / "layer_index.json").read_text())
    known = set(index.values()) | registered_layers()
    used = set().union(*(layers_in(keras.saving.serialize_keras_object(m)) for m in models))
    without = zoo.without_a_model()
    if left := known - used - without.keys():
        failures.append(f"no model of the zoo has {sorted(left)}")
    if wrong := used & without.keys() | without.keys() - known:
        failures.append(f"{sorted(wrong)}: said to be in no model")


def data(model, seed):
    draw = np.random.default_rng(seed)
    shape = (ROWS, *model.input_shape[1:])
    if model.inputs[0].dtype == "int32":
        x = draw.integers(0, 10, size=shape).astype("int32")
    else:
        x = draw.normal(size=shape).astype("float32")
    if "sparse" in str(model.loss):
        return x, draw.integers(0, model.output_shape[-1], size=(ROWS,)).astype("int32")
    shape = model.output_shape[1:]
    shape = predict(model, x).shape if None in shape else (ROWS, *shape)
    return x, draw.normal(size=shape).astype("float32")


def train(model, x, y, steps):
    model.run_eagerly = True  # nothing is compiled: many models, few steps
    model.optimizer.build(model.trainable_variables)
    losses = []
    for _ in range(steps):
        model.reset_metrics()
        logs = model.train_on_batch(x, y, return_dict=True)
        losses.append(float(logs["loss"]))
    return np.array(losses, "float64")


def predict(model, x):
    model.run_eagerly = True
    return np.asarray(model(x, training=False))


def state(model):
    return [np.asarray(v) for v in model.optimizer.variables]


failures = []
seconds = {}


@contextlib.contextmanager
def timed(name):
    begin = time.monotonic()
    yield
    seconds[name] = seconds.get(name, 0) + time.monotonic() - begin


def compare(name, what, got, want, tolerance=1e-5):
    if len(got) != len(want):
        return failures.append(f"{name}: {what}: {len(got)} values, expected {len(want)}")
    for i, (a, b) in enumerate(zip(got, want)):
        if np.shape(a) != np.shape(b) or not np.allclose(a, b, rtol=tolerance, atol=tolerance):
            return failures.append(f"{name}: {what}, number {i}: got\n{a}\nexpected\n{b}")


@contextlib.contextmanager
def quiet(name, path):
    """Keras has nothing to say about a file of Cohort's."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    for warning in said:
        if "load" in str(warning.message).lower() or "skip" in str(warning.message).lower():
            failures.append(f"{name}: Keras warns of {path.name}: {warning.message}")


def opened(name, path):
    with quiet(name, path):
        return keras.models.load_model(path)


def check_exported(folder, name, predicted):
    compare(name, "what the exported model answers in a process of its own",
            np.load(folder / f"{name}.answered.npy"), predicted)
    model = opened(name, folder / f"{name}.exported.keras")
    compare(name, "predictions of the exported model",
            predict(model, np.load(folder / f"{name}.x.npy")), predicted)
    if model.compiled:
        failures.append(f"{name}: the exported model is compiled")


def check(folder, name, expected):
    """What the program made of the case, and Keras of what the program wrote."""
    def numbers(what):
        return np.load(folder / f"{name}.{what}.npy")

    x = numbers("x")
    compare(name, "Cohort's predictions", numbers("predicted"), expected["predicted"])
    model = opened(name, folder / f"{name}.cohort.keras")
    compare(name, "predictions of the saved model", predict(model, x), expected["predicted"])
    check_exported(folder, name, expected["predicted"])
    if name in zoo.UNTRAINED:
        return
    y = numbers("y")
    compare(name, "Cohort's losses", numbers("losses"), expected["losses"])
    compare(name, "the saved optimizer", state(model), expected["state"], 1e-6)
    compare(name, "losses of the saved model", train(model, x, y, STEPS), expected["losses"])
    weights = folder / f"{name}.cohort.weights.h5"
    with quiet(name, weights):
        model.load_weights(weights)
    compare(name, "predictions with the saved weights", predict(model, x), expected["predicted"])
    model = opened(name, folder / f"{name}.trained.keras")
    compare(name, "predictions of the trained model", predict(model, x), expected["after"], 1e-4)
    compare(name, "the trained optimizer", state(model), expected["state after"], 1e-4)


def make(folder):
    expected, models = {}, cases()
    check_every_layer_is_used(models.values())
    for number, (name, model) in enumerate(models.items()):
        if sys.argv[4:] and name not in sys.argv[4:]:
            continue
        with timed(name):
            expected[name] = make_one(folder, name, model, number)
    return expected


def make_one(folder, name, model, number):
    """Keras's files of the case, and what the model says and learns there."""
    x, y = data(model, number)
    np.save(folder / f"{name}.x.npy", x)
    if name in zoo.UNTRAINED:
        model.save(folder / f"{name}.keras")
        return {"predicted": predict(model, x)}
    np.save(folder / f"{name}.y.npy", y)
    train(model, x, y, 2 if name != "accumulation" else 3)
    model.save(folder / f"{name}.keras")
    if name in zoo.IN_FOLDERS:
        keras.saving.save_model(model, folder / f"{name}.folder", zipped=False)
    model.save_weights(folder / f"{name}.weights.h5")
    expected = {"predicted": predict(model, x), "state": state(model)}
    expected["losses"] = train(model, x, y, STEPS)
    return expected | {"after": predict(model, x), "state after": state(model)}


def check_own(folder, name):
    """A model that the program made: Keras opens it and comes to the same. Some are only exported."""
    def numbers(what):
        return np.load(folder / f"{name}.{what}.npy")

    x, y, predicted = numbers("x"), numbers("y"), numbers("predicted")
    check_exported(folder, name, predicted)
    if not (folder / f"{name}.cohort.keras").exists():
        return
    model = opened(name, folder / f"{name}.cohort.keras")
    compare(name, "predictions of Cohort's model", predict(model, x), predicted)
    compare(name, "losses of Cohort's model", train(model, x, y, STEPS), numbers("losses"))


def main():
    program, predict_program, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    expected = make(folder)
    with timed("Cohort's"):
        own = subprocess.run([program, str(folder), *expected], check=True, stdout=subprocess.PIPE,
                             text=True).stdout.split()
    with timed("exported"):
        subprocess.run([predict_program, str(folder), *expected, *own], check=True)
    for name, numbers in expected.items():
        with timed(name):
            check(folder, name, numbers)
    for name in own:
        with timed(name):
            check_own(folder, name)
    print("seconds:", *(f"{name} {took:.1f}" for name, took in seconds.items()))
    print(f"{len(expected)} models of Keras {keras.__version__}, {len(own)} of Cohort: "
          f"{len(failures)} differences")
    sys.exit("\n".join(failures) if failures or not own else 0)


if __name__ == "__main__":
    main()
