#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes losses.json and metrics.json beside this file: what real Keras 3 computes.

    VENV/bin/python cohort/keras/golden/write_losses_metrics.py    # VENV has keras and tensorflow

golden_training_test.cc makes the same objects of the configs and compares: of losses the
value and the gradient, of metrics the result after each of several updates. Inputs are rounded, so
that float32 holds what the files say.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

K, M = keras.losses, keras.metrics
RNG = np.random.default_rng(7)


def rounded(x):
    return np.round(x, 3).astype("float32")


def reals(*shape):
    return rounded(RNG.normal(size=shape))


def unit(*shape):
    return rounded(RNG.uniform(0.02, 0.98, size=shape))


def shares(*shape):
    x = RNG.uniform(0.1, 1, size=shape)
    return rounded(x / x.sum(-1, keepdims=True))


def bits(*shape):
    return RNG.integers(0, 2, size=shape).astype("float32")


def classes(n, *shape):
    return RNG.integers(0, n, size=shape).astype("int64")


def one_hot(n, *shape):
    return np.eye(n, dtype="float32")[classes(n, *shape)]


def normed(*shape):
    x = RNG.normal(size=shape)
    return rounded(x / np.linalg.norm(x, axis=-1, keepdims=True))


def tensor(x):
    if x is None:
        return None
    x = np.asarray(x)
    data = [float(f"{v:.9g}") for v in x.reshape(-1).tolist()]
    if x.dtype.kind == "i":
        data = [int(v) for v in data]
    return {"shape": list(x.shape), "dtype": str(x.dtype), "data": data}


def loss_cases():
    """Name, loss, targets, predictions, sample weights."""
    plain = [
        K.MeanSquaredError, K.MeanAbsoluteError, K.MeanAbsolutePercentageError, K.LogCosh, K.Huber,
        K.CosineSimilarity]
    for loss in plain:
        yield loss(), reals(4, 3), reals(4, 3), None
        yield loss(reduction="none"), reals(4, 3), reals(4, 3), None
        yield loss(reduction="sum"), reals(4, 2, 3), reals(4, 2, 3), rounded(RNG.uniform(size=4))[:, None]
        yield loss(reduction="mean_with_sample_weight"), reals(4, 3), reals(4, 3), unit(4)
    yield K.MeanAbsolutePercentageError(), np.zeros((2, 2), "float32"), unit(2, 2), None
    yield K.LogCosh(), np.array([[0.0, -100.0]], "float32"), np.array([[100.0, 0.5]], "float32"), None
    yield K.CosineSimilarity(), np.zeros((2, 3), "float32"), reals(2, 3), None
    for loss in (K.MeanSquaredLogarithmicError, K.Poisson, K.KLDivergence):
        yield loss(), unit(4, 3), unit(4, 3), None
        yield loss(reduction="none"), unit(4, 3), unit(4, 3), unit(4)
    yield K.KLDivergence(), one_hot(3, 5), shares(5, 3), unit(5)
    yield K.KLDivergence(), np.array([[0.0, 1.0]], "float32"), np.array([[0.0, 1.5]], "float32"), None
    yield K.MeanSquaredLogarithmicError(), unit(3, 2), -unit(3, 2), None
    for loss in (K.Hinge, K.SquaredHinge):
        yield loss(), bits(4, 3), reals(4, 3), None
        yield loss(), 2 * bits(4, 3) - 1, reals(4, 3), unit(4)
        yield loss(reduction="none"), np.array([[0.0, 2.0]], "float32"), reals(1, 2), None
    yield K.CategoricalHinge(), one_hot(3, 4), reals(4, 3), None
    yield K.CategoricalHinge(reduction="none"), one_hot(3, 4, 2), reals(4, 2, 3), unit(4)[:, None]
    for options in ({}, {"from_logits": True}, {"apply_class_balancing": True, "alpha": 0.75},
                    {"gamma": 0.5, "label_smoothing": 0.25, "reduction": "none"}):
        pred = reals(4, 3) if options.get("from_logits") else unit(4, 3)
        yield K.BinaryFocalCrossentropy(**options), bits(4, 3), pred, unit(4)
    for options in ({}, {"from_logits": True}, {"alpha": 0.75, "gamma": 1.5},
                    {"label_smoothing": 0.25, "reduction": "none"}):
        pred = reals(4, 3) if options.get("from_logits") else unit(4, 3)
        yield K.CategoricalFocalCrossentropy(**options), one_hot(3, 4), pred, unit(4)
    for options in ({}, {"from_logits": True}):
        pred = reals(6, 3) if options else shares(6, 3)
        labels = np.array([0, -1, 2, 1, -1, 0], "int64")
        yield K.SparseCategoricalCrossentropy(ignore_class=-1, **options), labels, pred, None
        yield K.SparseCategoricalCrossentropy(ignore_class=-1, **options), labels, pred, unit(6)
        yield K.SparseCategoricalCrossentropy(
            ignore_class=1, reduction="sum", **options), classes(3, 2, 3), reals(2, 3, 3) if options else shares(2, 3, 3), None
        yield K.SparseCategoricalCrossentropy(ignore_class=0, reduction="none", **options), classes(3, 6), pred, None
    yield K.SparseCategoricalCrossentropy(ignore_class=1), np.array([1, 1], "int64"), shares(2, 3), None
    for reduction in ("sum_over_batch_size", "none"):
        yield K.CategoricalGeneralizedCrossEntropy(q=0.7, reduction=reduction), classes(3, 5), shares(5, 3), unit(5)
        yield K.Dice(reduction=reduction), bits(2, 4), unit(2, 4), None
        yield K.Dice(axis=[1, 2], reduction=reduction), bits(3, 2, 4), unit(3, 2, 4), unit(3)
        yield K.Tversky(alpha=0.25, beta=0.75, reduction=reduction), bits(2, 4), unit(2, 4), None
        yield K.Tversky(axis=[1, 2], reduction=reduction), bits(3, 2, 4), unit(3, 2, 4), unit(3)
        yield K.Circle(reduction=reduction), np.array([0, 1, 0, 1, 2, 2], "int64"), normed(6, 4), None
        yield (K.Circle(gamma=8.0, margin=0.25, remove_diagonal=False, reduction=reduction),
               np.array([0, 1, 0, 1], "int64"), normed(4, 3), unit(4))
        yield K.CTC(reduction=reduction), np.array([[1, 2, 0], [3, 3, 1]], "int64"), reals(2, 6, 4), None
    yield K.CTC(), np.array([[2, 1], [0, 0]], "int64"), reals(2, 4, 3), unit(2)
    for options in ({}, {"from_logits": True}):
        pred = (lambda *s: reals(*s)) if options else (lambda *s: unit(*s))
        yield K.BinaryCrossentropy(label_smoothing=0.25, **options), bits(4, 3), pred(4, 3), unit(4)
        yield K.CategoricalCrossentropy(label_smoothing=0.25, **options), one_hot(3, 4), pred(4, 3), unit(4)
        yield K.SparseCategoricalCrossentropy(**options), classes(3, 4), pred(4, 3), unit(4)


def loss_record(loss, y_true, y_pred, weight):
    pred = tf.constant(y_pred)
    with tf.GradientTape() as tape:
        tape.watch(pred)
        value = loss(tf.constant(y_true), pred, sample_weight=weight)
        cotangent = 1 + 0.5 * tf.cast(tf.reshape(tf.range(tf.size(value)), tf.shape(value)), value.dtype)
        total = tf.reduce_sum(value * cotangent)
    gradient = tape.gradient(total, pred)
    return {"config": keras.saving.serialize_keras_object(loss), "y_true": tensor(y_true),
            "y_pred": tensor(y_pred), "weight": tensor(weight), "value": tensor(value.numpy()),
            "cotangent": tensor(cotangent.numpy()), "gradient": tensor(gradient.numpy())}


def metric_cases():
    """Metric, and updates of (targets, predictions, sample weights)."""
    for metric in (M.MeanSquaredError, M.RootMeanSquaredError, M.MeanAbsoluteError,
                   M.MeanAbsolutePercentageError, M.LogCoshError, M.CosineSimilarity,
                   M.PearsonCorrelation, M.ConcordanceCorrelation):
        yield metric(), [(reals(4, 3), reals(4, 3), None), (reals(2, 3), reals(2, 3), unit(2)),
                         (reals(3, 2, 3), reals(3, 2, 3), unit(3, 2))]
    for metric in (M.MeanSquaredLogarithmicError, M.KLDivergence, M.Poisson):
        yield metric(), [(unit(4, 3), unit(4, 3), None), (unit(2, 3), unit(2, 3), unit(2))]
    for metric in (M.Hinge, M.SquaredHinge, M.CategoricalHinge):
        yield metric(), [(one_hot(3, 4), reals(4, 3), None), (one_hot(3, 2), reals(2, 3), unit(2))]
    yield M.BinaryCrossentropy(), [(bits(4, 3), unit(4, 3), None), (bits(2, 3), unit(2, 3), unit(2))]
    yield M.BinaryCrossentropy(from_logits=True, label_smoothing=0.25), [
        (bits(4, 3), reals(4, 3), None)]
    yield M.CategoricalCrossentropy(label_smoothing=0.25), [
        (one_hot(3, 4), shares(4, 3), None), (one_hot(3, 4), shares(4, 3), unit(4))]
    yield M.SparseCategoricalCrossentropy(from_logits=True), [
        (classes(3, 4), reals(4, 3), None), (classes(3, 4), reals(4, 3), unit(4))]
    yield M.SparseCategoricalCrossentropy(ignore_class=1), [
        (np.array([0, 1, 2, 1], "int64"), shares(4, 3), None)]
    # Counts of a confusion matrix; predictions on thresholds, at 0 and at 1 count as Keras does.
    edges = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.1, 0.3, 0.5], "float32")
    labels = np.array([0, 1, 1, 0, 1, 1, 0, 0], "float32")
    binary = [(labels, edges, None), (bits(6), unit(6), unit(6)), (bits(4, 1), unit(4, 1), unit(4)),
              (bits(3, 2), unit(3, 2), unit(3))]
    for metric in (M.TruePositives, M.TrueNegatives, M.FalsePositives, M.FalseNegatives,
                   M.Precision, M.Recall):
        yield metric(), binary
        yield metric(thresholds=0.25), binary
        yield metric(thresholds=[0.0, 0.5, 1.0]), binary
        yield metric(thresholds=[0.2, 0.3, 0.9]), binary
    many = [(bits(5, 4), unit(5, 4), None), (bits(3, 4), unit(3, 4), unit(3))]
    for metric in (M.Precision, M.Recall):
        yield metric(top_k=2), many
        yield metric(class_id=1), many
        yield metric(top_k=3, class_id=2, thresholds=[0.25, 0.75]), many
    for metric in (M.SensitivityAtSpecificity, M.SpecificityAtSensitivity, M.PrecisionAtRecall,
                   M.RecallAtPrecision):
        yield metric(0.5), binary
        yield metric(0.25, num_thresholds=1), binary
        yield metric(0.4, num_thresholds=5, class_id=1), many
    for curve in ("ROC", "PR", "PRGAIN"):
        for method in ("interpolation", "majoring", "minoring"):
            yield M.AUC(num_thresholds=11, curve=curve, summation_method=method), binary
    yield M.AUC(), binary
    yield M.AUC(thresholds=[0.3, 0.7]), binary
    yield M.AUC(from_logits=True), [(bits(6), reals(6), None), (bits(4), reals(4), unit(4))]
    yield M.AUC(label_weights=[0.5, 1.0, 0.25, 2.0]), many
    yield M.AUC(multi_label=True, num_labels=4, num_thresholds=21), many
    yield M.AUC(multi_label=True, num_thresholds=21, curve="PR"), many
    yield M.AUC(multi_label=True, label_weights=[0.5, 1.0, 0.25, 2.0], curve="PR"), many
    yield M.AUC(multi_label=True, thresholds=[0.3, 0.7]), many
    for average in (None, "micro", "macro", "weighted"):
        yield M.F1Score(average=average), many
        yield M.FBetaScore(average=average, beta=2.0, threshold=0.5), many
    whole = [(classes(3, 6), classes(3, 6), None), (classes(3, 2, 2), classes(3, 2, 2), np.array([[1, 2], [3, 1]]))]
    yield M.IoU(num_classes=3, target_class_ids=[0, 2]), whole
    yield M.IoU(num_classes=3, target_class_ids=[1], ignore_class=0), whole
    yield M.MeanIoU(num_classes=3), whole
    yield M.MeanIoU(num_classes=3, sparse_y_pred=False, sparse_y_true=False), [
        (one_hot(3, 5), shares(5, 3), None)]
    yield M.BinaryIoU(target_class_ids=[1], threshold=0.25), [
        (bits(6), unit(6), None), (bits(4), unit(4), np.array([1, 2, 0, 1]))]
    yield M.OneHotIoU(num_classes=3, target_class_ids=[0, 2]), [(one_hot(3, 5), shares(5, 3), None)]
    yield M.OneHotMeanIoU(num_classes=3, sparse_y_pred=True), [(one_hot(3, 5), classes(3, 5), None)]
    for options in ({}, {"class_aggregation": None}, {"num_regressors": 2},
                    {"class_aggregation": "variance_weighted_average"}):
        yield M.R2Score(**options), [(reals(5, 2), reals(5, 2), None), (reals(3, 2), reals(3, 2), unit(3))]


def metric_record(metric, updates):
    metric.reset_state()
    record = {"updates": [], "results": []}
    for y_true, y_pred, weight in updates:
        metric.update_state(y_true, y_pred, weight)
        record["updates"].append(
            {"y_true": tensor(y_true), "y_pred": tensor(y_pred), "weight": tensor(weight)})
        record["results"].append(tensor(keras.ops.convert_to_numpy(metric.result())))
    config = keras.saving.serialize_keras_object(metric)
    keras.utils.clear_session()  # so that the next one's name has no number
    return {"config": config, "direction": getattr(metric, "_direction", None), **record}


def write(name, records):
    path = pathlib.Path(__file__).resolve().parent / name
    path.write_text("[\n" + ",\n".join(json.dumps(r) for r in records) + "\n]\n")


def main():
    write("losses.json", [loss_record(*case) for case in loss_cases()])
    write("metrics.json", [metric_record(*case) for case in metric_cases()])


if __name__ == "__main__":
    main()
