#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ranges.json beside this file: which values of options real Keras 3 refuses.

    VENV/bin/python cohort/keras/golden/write_ranges.py      # VENV has keras and tensorflow

An object of each class, out of the other golden files, is made again with one of its options at a
time set to values at the edges of what its type can say, and is then used: a layer, a loss and a
metric with the inputs of that file, an optimizer for two steps. golden_ranges_test.cc does the same.

    {"Dense": {"of": "layers/basic.json:dense", "options": {"units": [[-1, "refused"], ...]}}}

"refused": it throws, when it is made or used; "taken"; "not finite": it is taken, and gives NaN or
infinity.
"""

import json
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
tree = keras.tree

# What is no range: who it is, and what it is made of.
LEFT_OUT = {"name", "dtype", "trainable", "seed", "batch_shape", "vocabulary", "idf_weights"}
NUMBERS = [-7, -1, 0, 1, 7]
FRACTIONS = [-1.5, -0.5, 0.0, 0.5, 1.0, 1.5]
CALLBACKS = {
    "EarlyStopping": {"patience": [-1, 0], "mode": ["nonsense", "max"], "min_delta": [-1.0, 0.0],
                      "start_from_epoch": [-1]},
    "ReduceLROnPlateau": {"factor": [-0.5, 0.0, 0.5, 1.0, 1.5], "patience": [-1, 0],
                          "mode": ["nonsense", "max"], "cooldown": [-1], "min_delta": [-1.0],
                          "min_lr": [-1.0]},
    "ModelCheckpoint": {"save_freq": [-1, 1], "mode": ["nonsense", "max"]},
    "BackupAndRestore": {"save_freq": [-1, 0, 1]},
    "TensorBoard": {"update_freq": [-1, 1], "histogram_freq": [-1]},
}


def array(golden):
    """Of a nest as write_layers.py writes it."""
    if golden is None:
        return None
    if isinstance(golden, list):
        return [array(part) for part in golden]
    if "named" in golden:
        return {name: array(part) for name, part in golden["named"].items()}
    values = golden.get("values", golden.get("data"))
    if golden["dtype"] == "string":
        return tf.constant(np.array(values, dtype=object).reshape(golden["shape"]))
    return tf.constant(np.array(values, dtype=golden["dtype"]).reshape(golden["shape"]))


def values_for(value):
    """Other values of the same type; of what is not given, numbers."""
    if isinstance(value, bool) or isinstance(value, dict):
        return []
    if isinstance(value, int):
        return NUMBERS
    if isinstance(value, float):
        return FRACTIONS
    if isinstance(value, str):
        return ["nonsense", ""]
    if value is None:
        return [-1, 0]
    if isinstance(value, (list, tuple)) and value and all(type(v) in (int, float) for v in value):
        kind = type(value[0])
        return [[kind(n)] * len(value) for n in (-1, 0)] + [list(value) + [kind(1)], []]
    return []


def finite(outputs):
    for y in tree.flatten(outputs):
        if y is not None and not isinstance(y, str):
            y = np.asarray(keras.ops.convert_to_numpy(y) if hasattr(y, "dtype") else y)
            if y.dtype.kind not in "OSUbiu" and not np.isfinite(y.astype("float64")).all():
                return False
    return True


def use_layer(layer, case):
    inputs = array(case["inputs"])
    arguments = {"training": case["training"]} if layer._call_has_training_arg else {}
    return layer(*inputs, **arguments) if case["spread"] else layer(inputs, **arguments)


def use_loss(loss, case):
    return loss(array(case["y_true"]), array(case["y_pred"]))


def use_metric(metric, case):
    update = case["updates"][0]
    if update["y_pred"] is None:
        metric.update_state(array(update["y_true"]))
    else:
        metric.update_state(array(update["y_true"]), array(update["y_pred"]))
    return metric.result()


def use_optimizer(optimizer, case):
    del case
    weights = [keras.Variable(np.full(shape, 0.5), dtype="float32", name=name)
               for name, shape in (("kernel", (3, 4)), ("bias", (4,)))]
    for sign in (1, -1):
        gradients = [tf.constant(sign * np.linspace(0.1, 1, int(np.prod(w.shape))).reshape(w.shape),
                                 "float32") for w in weights]
        optimizer.apply(gradients, weights)
    return [w.value for w in weights]


def use_schedule(schedule, case):
    del case
    return [schedule(step) for step in (0, 1, 20)]


def use_initializer(initializer, case):
    del case
    return initializer((4, 4), dtype="float32")


def use_on_weight(function, case):
    del case
    return function(tf.constant(np.linspace(-1, 1, 12).reshape(3, 4), "float32"))


def golden(name):
    return json.loads((HERE / name).read_text())


def cases():
    """(where it stands, config, the rest, how it is used); the first of each class counts."""
    for path in sorted((HERE / "layers").glob("*.json")):
        for name, case in json.loads(path.read_text()).items():
            plain = case["mask"] is None and case["initial_state"] is None and "adapt" not in case
            if plain:
                yield f"layers/{path.name}:{name}", case["layer"], case, use_layer
    for name, use in (("losses.json", use_loss), ("metrics.json", use_metric)):
        for i, case in enumerate(golden(name)):
            yield f"{name}:{i}", case["config"], case, use
    uses = {"keras.optimizers": use_optimizer, "keras.optimizers.schedules": use_schedule,
            "keras.initializers": use_initializer, "keras.regularizers": use_on_weight,
            "keras.constraints": use_on_weight}
    for part, part_cases in golden("optimizers.json").items():
        for i, case in enumerate(part_cases):
            config = case["config"]
            yield f"optimizers.json:{part}/{i}", config, case, uses[config["module"]]
    for name, config in golden("configs.json").items():
        if config.get("module") in uses:
            yield f"configs.json:{name}", config, None, uses[config["module"]]


def outcome(make, use, case):
    try:
        made = make()
        return "taken" if use is None or finite(use(made, case)) else "not finite"
    except Exception:  # noqa: BLE001: whatever Keras throws
        return "refused"


def options_of(config, case, use):
    out = {}
    unchanged = {key: part for key, part in config.items() if key != "build_config"}
    as_it_is = outcome(lambda: keras.saving.deserialize_keras_object(unchanged), use, case)
    assert as_it_is == "taken", f"{config['class_name']} as it is is {as_it_is}"
    for option, value in config["config"].items():
        if option in LEFT_OUT:
            continue
        for other in values_for(value):
            changed = {**unchanged, "config": {**config["config"], option: other}}
            out.setdefault(option, []).append([other, outcome(
                lambda: keras.saving.deserialize_keras_object(changed), use, case)])
    return out


def callback(name, options):
    path = {"ModelCheckpoint": "x.keras", "BackupAndRestore": "x", "TensorBoard": "x"}
    first = [path[name]] if name in path else []
    return getattr(keras.callbacks, name)(*first, **options)


def main():
    ranges = {}
    for where, config, case, use in cases():
        module = config["module"].split(".")[1]
        key = f"{module}.{config['class_name']}"
        if key not in ranges:
            print(key, flush=True)
            ranges[key] = {"of": where, "options": options_of(config, case, use)}
    for name, options in CALLBACKS.items():
        ranges[f"callbacks.{name}"] = {"of": "", "options": {
            option: [[v, outcome(lambda: callback(name, {option: v}), None, None)] for v in values]
            for option, values in options.items()}}
    ranges = {key: one for key, one in ranges.items() if one["options"]}
    lines = [f"{json.dumps(key)}: {json.dumps(one)}" for key, one in ranges.items()]
    (HERE / "ranges.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
