#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fits.json beside this file: models that are drawn at random and compiled at random, and what
comes of fit and evaluate in real Keras, on one replica.

    VENV/bin/python cohort/keras/golden/write_fits.py            # VENV has keras and tensorflow
    VENV/bin/python cohort/keras/golden/write_fits.py 100 60 /tmp/more.json   # 60 others, from seed 100

golden_fits_test.cc opens the same models under one, two and three replicas, trains them on the same
batches and compares histories, metrics and weights; COHORT_FITS=/tmp/more.json gives it another file.
Most cases are in float64, so that an optimizer that divides a gradient by its own size makes no
difference of rounding: what differs there differs by what it computes.
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

L, K, M, O = keras.layers, keras.losses, keras.metrics, keras.optimizers


class Draw:
    """What one case is made of."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.dtype = "float32" if self.chance(0.25) else "float64"
        keras.config.set_floatx(self.dtype)
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        self.n = int(self.rng.integers(4, 20))

    def chance(self, p):
        return bool(self.rng.uniform() < p)

    def one_of(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def some_of(self, most, choices):
        count = int(self.rng.integers(0, most + 1))
        return [choices[i] for i in self.rng.permutation(len(choices))[:count]]

    def reals(self, *shape):
        return np.round(self.rng.normal(size=shape), 3).astype(self.dtype)

    def unit(self, *shape):
        return np.round(self.rng.uniform(0.1, 2, size=shape), 3).astype(self.dtype)

    # -- layers

    def extras(self):
        """Options of a layer with weights."""
        out = {}
        if self.chance(0.2):
            out["kernel_regularizer"] = self.one_of(
                keras.regularizers.L2(0.03), keras.regularizers.L1(0.02), keras.regularizers.L1L2(0.01, 0.01))
        if self.chance(0.15):
            out["activity_regularizer"] = keras.regularizers.L2(0.02)
        if self.chance(0.15):
            out["kernel_constraint"] = self.one_of(
                keras.constraints.MaxNorm(0.8), keras.constraints.NonNeg(), keras.constraints.UnitNorm(),
                keras.constraints.MinMaxNorm(0.2, 0.7))
        return out

    def dense(self, width):
        return L.Dense(width, activation=self.one_of("relu", "tanh", "gelu", "selu", None), **self.extras())

    def normal(self):
        return self.one_of(
            L.BatchNormalization(momentum=0.7), L.LayerNormalization(),
            L.BatchNormalization(momentum=0.9, scale=False), L.UnitNormalization())

    def body_vectors(self):
        x = keras.Input((5,), name=f"in{self.rng.integers(1000)}")
        h = x
        for _ in range(int(self.rng.integers(1, 3))):
            h = self.dense(4)(h)
            if self.chance(0.35):
                h = self.normal()(h)
        if self.chance(0.15):
            h = L.ActivityRegularization(l1=0.01, l2=0.02)(h)
        return x, h, self.reals(self.n, 5)

    def body_images(self):
        x = keras.Input((6, 6, 2), name=f"in{self.rng.integers(1000)}")
        h = L.Conv2D(3, 3, activation="relu", **self.extras())(x)
        if self.chance(0.5):
            h = self.normal()(h)
        h = self.one_of(L.MaxPooling2D(2), L.AveragePooling2D(2))(h)
        h = self.one_of(L.Flatten(), L.GlobalAveragePooling2D())(h)
        return x, h, self.reals(self.n, 6, 6, 2)

    def recurrent(self, returns):
        return self.one_of(L.LSTM, L.GRU, L.SimpleRNN)(3, return_sequences=returns, **{
            k: v for k, v in self.extras().items() if k != "kernel_constraint"})

    def body_tokens(self, returns):
        t = 4
        x = keras.Input((t,), dtype="int64", name=f"in{self.rng.integers(1000)}")
        h = L.Embedding(6, 3, mask_zero=True)(x)
        if self.chance(0.3):
            h = L.BatchNormalization(momentum=0.7)(h)
        h = self.recurrent(returns)(h)
        tokens = self.rng.integers(1, 6, size=(self.n, t)).astype("int64")
        for row, length in enumerate(self.rng.integers(1, t + 1, size=self.n)):
            tokens[row, length:] = 0
        return x, h, tokens

    def body_masked(self, returns):
        t = 4
        x = keras.Input((t, 2), name=f"in{self.rng.integers(1000)}")
        h = L.Masking()(x)
        if self.chance(0.3):
            h = L.BatchNormalization(momentum=0.7)(h)
        h = self.recurrent(returns)(h) if returns or self.chance(0.5) else L.GlobalAveragePooling1D()(h)
        values = self.reals(self.n, t, 2)
        for row, length in enumerate(self.rng.integers(1, t + 1, size=self.n)):
            values[row, length:] = 0
        return x, h, values

    # -- heads: output, labels, losses, metrics

    def reduction(self):
        return self.one_of(*["sum_over_batch_size"] * 4, "sum", "mean_with_sample_weight")

    def head(self, h, name, lead):
        kind = self.one_of("real", "positive", "binary", "one_hot", "sparse")
        return getattr(self, "head_" + kind)(h, name, lead)

    def head_real(self, h, name, lead):
        width = self.one_of(1, 3)
        y = self.reals(*lead, width)
        if width == 1 and self.chance(0.5):
            y = y[..., 0]
        loss = self.one_of(K.MeanSquaredError, K.MeanAbsoluteError, K.Huber, K.LogCosh)(reduction=self.reduction())
        if width > 1 and self.chance(0.2):
            loss = K.CosineSimilarity(reduction=self.reduction())
        if self.chance(0.2):
            loss = self.one_of("mse", "mae", "huber")
        metrics = ["mae", "mse", M.RootMeanSquaredError(), M.LogCoshError(), M.MeanAbsolutePercentageError()]
        if width > 1:
            metrics.append(M.CosineSimilarity())
            if len(lead) == 1:
                metrics.append(M.R2Score())
        return L.Dense(width, name=name, **self.extras())(h), y, loss, metrics

    def head_positive(self, h, name, lead):
        y = self.unit(*lead, 2)
        loss = self.one_of(K.Poisson, K.MeanSquaredLogarithmicError, K.MeanAbsolutePercentageError)(
            reduction=self.reduction())
        metrics = ["mae", M.MeanSquaredLogarithmicError(), M.Poisson(), M.RootMeanSquaredError()]
        return L.Dense(2, activation="softplus", name=name)(h), y, loss, metrics

    def head_binary(self, h, name, lead):
        width = self.one_of(1, 3)
        y = self.rng.integers(0, 2, size=(*lead, width)).astype(self.one_of(self.dtype, "int64"))
        if width == 1 and self.chance(0.5):
            y = y[..., 0]
        logits = self.chance(0.3)
        loss = self.one_of(
            K.BinaryCrossentropy(from_logits=logits, label_smoothing=self.one_of(0.0, 0.2), reduction=self.reduction()),
            K.BinaryFocalCrossentropy(from_logits=logits, reduction=self.reduction()),
            K.Hinge(reduction=self.reduction()), K.SquaredHinge(reduction=self.reduction()))
        if not logits and self.chance(0.2):
            loss = "binary_crossentropy"
        metrics = ["accuracy", M.BinaryAccuracy(threshold=0.4), M.BinaryCrossentropy(from_logits=logits)]
        if y.ndim == len(lead) + 1:  # else Keras compares each row with all
            metrics.append(M.Hinge())
        if len(lead) > 1 and not logits and width == 3:
            metrics += [M.Precision(), M.TruePositives(thresholds=0.3), M.RootMeanSquaredError()]
        if len(lead) == 1 and not logits:
            metrics += [M.AUC(num_thresholds=20), M.Precision(), M.Recall(thresholds=0.3), M.TruePositives(),
                        M.FalseNegatives(), M.PrecisionAtRecall(0.5, num_thresholds=15),
                        M.SpecificityAtSensitivity(0.5, num_thresholds=15), M.BinaryIoU(threshold=0.4)]
            if width > 1:
                metrics += [M.F1Score(threshold=0.5), M.AUC(num_thresholds=20, multi_label=True, name="auc_many")]
        return L.Dense(width, activation=None if logits else "sigmoid", name=name)(h), y, loss, metrics

    def head_one_hot(self, h, name, lead):
        y = np.eye(3, dtype=self.dtype)[self.rng.integers(0, 3, size=lead)]
        logits = self.chance(0.3)
        loss = self.one_of(
            K.CategoricalCrossentropy(from_logits=logits, label_smoothing=self.one_of(0.0, 0.1), reduction=self.reduction()),
            K.CategoricalFocalCrossentropy(from_logits=logits, reduction=self.reduction()),
            K.CategoricalHinge(reduction=self.reduction()))
        if not logits and self.chance(0.4):
            loss = self.one_of("categorical_crossentropy", K.KLDivergence(reduction=self.reduction()))
        metrics = ["accuracy", M.CategoricalCrossentropy(from_logits=logits)]
        if self.dtype == "float32":  # TensorFlow knows the greatest of no others
            metrics.append(M.TopKCategoricalAccuracy(k=2))
        if len(lead) == 1 and not logits:
            metrics += [M.F1Score(average="macro"), M.OneHotMeanIoU(num_classes=3), M.KLDivergence(),
                        M.Precision(top_k=1), M.AUC(num_thresholds=20)]
        return L.Dense(3, activation=None if logits else "softmax", name=name)(h), y, loss, metrics

    def head_sparse(self, h, name, lead):
        y = self.rng.integers(0, 3, size=lead).astype(self.one_of("int64", "int32"))
        if self.chance(0.4):
            y = y[..., None]
        logits = self.chance(0.4)
        ignored = self.one_of(None, None, 1)
        loss = K.SparseCategoricalCrossentropy(from_logits=logits, ignore_class=ignored, reduction=self.reduction())
        if not logits and self.chance(0.4):
            loss = "sparse_categorical_crossentropy"
        metrics = ["accuracy", M.SparseCategoricalCrossentropy(from_logits=logits, ignore_class=ignored),
                   "sparse_categorical_accuracy"]
        if self.dtype == "float32":
            metrics.append(M.SparseTopKCategoricalAccuracy(k=2))
        return L.Dense(3, activation=None if logits else "softmax", name=name)(h), y, loss, metrics

    # -- the rest

    def optimizer(self):
        rate = self.one_of(0.02, 0.1, O.schedules.ExponentialDecay(0.1, 3, 0.5))
        options = {}
        if self.chance(0.2):
            options[self.one_of("clipnorm", "clipvalue", "global_clipnorm")] = 0.1
        if self.chance(0.2):
            options["gradient_accumulation_steps"] = self.one_of(2, 3)
        elif self.chance(0.15):  # averages over updates, where Keras counts calls
            options |= {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": self.one_of(None, 2)}
        if self.chance(0.15):
            options["weight_decay"] = 0.02
        if self.dtype == "float32":
            return self.one_of(O.SGD(rate, momentum=0.9, nesterov=True, **options), O.SGD(rate, **options))
        kind = self.one_of(
            O.SGD, O.Adam, O.AdamW, O.RMSprop, O.Adagrad, O.Adadelta, O.Nadam, O.Ftrl, O.Lion, O.Lamb, O.Adafactor,
            O.Adamax)
        return kind(rate, **options)

    def sample_weight(self, lead):
        if self.chance(0.5):
            return None
        if len(lead) > 1 and self.chance(0.5):
            return self.unit(*lead)
        return self.unit(self.n, 1) if self.chance(0.2) else self.unit(self.n)


def case_of(seed):
    d = Draw(seed)
    outputs = 2 if d.chance(0.3) else 1
    bodies, lead = [], (d.n,)
    if d.chance(0.35):
        returns = d.chance(0.6)
        bodies = [d.one_of(d.body_tokens, d.body_masked)(returns)]
        lead = (d.n, 4) if returns else (d.n,)
    else:
        bodies = [d.one_of(d.body_vectors, d.body_vectors, d.body_images)() for _ in range(1 + d.chance(0.2))]
    h = bodies[0][1] if len(bodies) == 1 else L.Concatenate()([b[1] for b in bodies])
    heads = [d.head(h, name, lead) for name in ("left", "right")[:outputs]]
    x = [b[0] for b in bodies]
    model = keras.Model(x if len(x) > 1 else x[0], [o[0] for o in heads] if outputs > 1 else heads[0][0])
    compiled = {"optimizer": d.optimizer(), "steps_per_execution": d.one_of(1, 1, 2)}
    drawn = [d.some_of(5, h[3]) for h in heads]
    metrics, weighted = [m[:3] for m in drawn], [m[3:] for m in drawn]
    if d.chance(0.5):
        metrics, weighted = weighted, metrics
    if outputs == 1:
        compiled |= {"loss": heads[0][2], "metrics": metrics[0], "weighted_metrics": weighted[0]}
    else:
        compiled |= {"loss": {"left": heads[0][2], "right": heads[1][2]},
                     "metrics": {"left": metrics[0], "right": metrics[1]},
                     "weighted_metrics": {"left": weighted[0], "right": weighted[1]}}
        if d.chance(0.5):
            compiled["loss_weights"] = {"left": 0.5, "right": 2.0}
    with_dense_gradients(compiled["optimizer"])
    model.compile(**compiled, jit_compile=False, run_eagerly=True)
    return run(seed, d, model, [b[2] for b in bodies], [h[1] for h in heads], lead)


def exact():
    """On TensorFlow, which is quick, Keras squares and clips the rows of an Embedding's gradient before they
    are summed, and numbers such as beta_2 pass through float32. On JAX it does not, and not here either."""
    cast = keras.src.ops.cast
    keras.src.ops.cast = lambda x, dtype: cast(np.float64(x) if isinstance(x, float) else x, dtype)


def with_dense_gradients(optimizer):
    apply = optimizer.apply
    optimizer.apply = lambda grads, weights=None: apply([tf.convert_to_tensor(g) for g in grads], weights)


def run(seed, d, model, x, y, lead):
    weights = [d.sample_weight(lead)] * len(y)
    classes = None
    if len(y) == 1 and weights[0] is None and y[0].dtype.kind == "i" and len(lead) == 1 and (
            y[0].ndim == 1 or y[0].shape[-1] == 1) and d.chance(0.4):
        classes = {0: 0.5, 1: 2.0}
    batch, epochs = int(d.rng.integers(1, d.n + 1)), 2
    record = {
        "name": f"{seed} {model.layers[1].__class__.__name__} {type(model.optimizer).__name__}", "dtype": d.dtype,
        "model": keras.saving.serialize_keras_object(model), "compile": compile_config(model),
        "weights": [tensor(w) for w in model.get_weights()], "x": [tensor(v) for v in x],
        "y": [tensor(v) for v in y], "weight": tensor(weights[0]), "class_weight": classes, "batch_size": batch,
        "epochs": epochs}
    record["model"].pop("compile_config", None)
    synchronize(record["model"])

    def one(values):
        return values if len(values) > 1 else values[0]

    weight = None if weights[0] is None else one(weights)
    history = model.fit(one(x), one(y), batch_size=batch, epochs=epochs, shuffle=False, sample_weight=weight,
                        class_weight=classes, verbose=0)
    record["history"] = {name: [np.asarray(v, "float64").tolist() for v in values]
                         for name, values in history.history.items()}
    logs = model.evaluate(one(x), one(y), batch_size=batch, sample_weight=weight, return_dict=True, verbose=0)
    record["evaluated"] = {name: np.asarray(v, "float64").tolist() for name, v in logs.items()}
    record["after"] = [tensor(w) for w in model.get_weights()]
    return record


def compile_config(model):
    config = model.get_compile_config()
    return {name: value for name, value in config.items() if name not in ("jit_compile", "run_eagerly")}


def synchronize(config):
    """Of replicas here the statistics are to be those of the whole batch, which Keras on one always has."""
    for layer in config["config"]["layers"]:
        if layer["class_name"] == "BatchNormalization":
            layer["config"]["synchronized"] = True


def tensor(x):
    if x is None:
        return None
    x = np.asarray(x)
    data = x.reshape(-1).tolist()
    if x.dtype == "float32":
        data = [float(f"{v:.9g}") for v in data]
    return {"shape": list(x.shape), "dtype": str(x.dtype), "data": data}


def main():
    first, count = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (0, 24)
    exact()
    path = sys.argv[3] if len(sys.argv) > 3 else pathlib.Path(__file__).resolve().parent / "fits.json"
    cases = []
    for seed in range(first, first + count):
        try:
            cases.append(case_of(seed))
        except Exception as error:  # Keras refuses some of what is drawn
            print(seed, type(error).__name__, str(error).splitlines()[0], file=sys.stderr)
    pathlib.Path(path).write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
