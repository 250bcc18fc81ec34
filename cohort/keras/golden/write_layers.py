#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes layers/FAMILY.json beside each layers/FAMILY.py: what real Keras 3 computes.

    VENV/bin/python cohort/keras/golden/write_layers.py [FAMILY...]   # VENV: keras and tensorflow
    # (python3 -m venv VENV && VENV/bin/pip install keras==3.15.1 tensorflow-cpu)

golden_layers_test.cc makes the same layers of their configs and compares outputs, gradients of
sum(cotangent * output), statistics and configs. layer_index.json has the names of all layers,
layer_masking.json whether the layer of each case says that it supports masks.
"""

import importlib
import inspect
import json
import pathlib
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "layers")]

from layer_cases import Integers, keras  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

backend, tree = keras.src.backend, keras.tree


def is_shape(spec):
    return isinstance(spec, tuple) and all(isinstance(n, int) for n in spec)


def drawn(random, spec):
    """The input that a case describes; four digits keep files small."""
    if isinstance(spec, Integers):
        return random.integers(0, spec.below, spec.shape).astype("int32")
    if is_shape(spec):
        return np.round(random.standard_normal(spec), 4).astype("float32")
    return np.asarray(spec)


def draw(random, spec):
    if isinstance(spec, dict):
        return {name: draw(random, part) for name, part in spec.items()}
    if isinstance(spec, list):
        return [draw(random, part) for part in spec]
    return None if spec is None else drawn(random, spec)


def number(value):
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if np.issubdtype(type(value), np.integer):
        return int(value)
    if not np.isfinite(value):
        raise ValueError("expected finite numbers")
    short = float(str(value))  # as many digits as this type needs
    return int(short) if short == int(short) and abs(short) < 1e9 else short


def written(value):
    """A tensor, or a list or a dictionary of them, as the test reads it."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {"named": {name: written(part) for name, part in value.items()}}
    if isinstance(value, (list, tuple)):
        return [written(part) for part in value]
    if not isinstance(value, np.ndarray):
        value = backend.convert_to_numpy(tf.convert_to_tensor(value))
    if value.dtype.kind in "OSU":
        texts = [t.decode() if isinstance(t, bytes) else str(t) for t in value.reshape(-1)]
        return {"dtype": "string", "shape": list(value.shape), "values": texts}
    if value.dtype.name in ("bfloat16", "float16"):
        dtype, value = value.dtype.name, value.astype("float32")
    else:
        dtype = value.dtype.name
    values = [number(v) for v in value.reshape(-1)]
    return {"dtype": dtype, "shape": list(value.shape), "values": values}


def new_weight(random, weight):
    values = np.round(0.5 * random.standard_normal(weight.shape), 4).astype("float32")
    return np.abs(values) + 0.5 if "variance" in weight.name else values


def floats(nest):
    return [x for x in tree.flatten(nest) if x is not None and x.dtype.is_floating]


def run(one):
    random = np.random.default_rng(zlib.crc32(one.name.encode()))
    layer, plain = one.layer, draw(random, one.inputs)
    layer.name = "x"
    before_adapt = adapt(layer, one.adapt)
    arguments = {}
    inputs = tree.map_structure(tf.constant, plain)
    state = draw(random, one.initial_state)
    if state is not None:
        arguments["initial_state"] = tree.map_structure(tf.constant, state)
    if "training" in inspect.signature(layer.call).parameters:
        arguments["training"] = one.training

    def call(inputs):
        masks = masks_of(one)
        for x, mask in zip(tree.flatten(inputs), masks if isinstance(masks, list) else [masks]):
            if mask is not None:
                backend.set_keras_mask(x, tf.constant(mask))
        if one.names:
            return layer(inputs[0], **dict(zip(one.names, inputs[1:])), **arguments)
        return layer(*inputs, **arguments) if one.spread else layer(inputs, **arguments)

    if one.compiled:
        call = tf.function(call, jit_compile=True)
        layer.build(inputs.shape)
    call(inputs)
    if one.weights == "random":
        for weight in layer.weights:
            weight.assign(new_weight(random, weight))
    before = [backend.convert_to_numpy(w) for w in layer.weights]
    inputs = tree.map_structure(tf.constant, plain)
    with tf.GradientTape() as tape:
        tape.watch(floats(inputs))
        outputs = call(inputs)
        loss = sum(tf.cast(x, "float32") for x in layer.losses) if layer.losses else None
        cotangents = [np.round(random.standard_normal(y.shape), 4).astype("float32")
                      for y in floats(outputs)]
        target = sum(tf.reduce_sum(tf.cast(y, "float32") * c)
                     for y, c in zip(floats(outputs), cotangents))
    sources = [floats(inputs), [w.value for w in layer.trainable_weights]]
    to_inputs, to_weights = tape.gradient(target, sources) if one.gradients and floats(
        outputs) else ([], [])
    gradients = dict(zip([w.path for w in layer.trainable_weights], map(dense, to_weights)))
    out_mask = [backend.get_keras_mask(y) for y in tree.flatten(outputs)]
    after = [backend.convert_to_numpy(w) for w in layer.weights]
    golden = {
        "layer": keras.saving.serialize_keras_object(layer),
        "inputs": written(plain), "training": one.training, "spread": one.spread,
        "mask": written(masks_of(one)), "initial_state": written(state),
        "tolerance": one.tolerance,
        "weights": [{"name": w.name, "value": written(v)} for w, v in zip(layer.weights, before)],
        "outputs": written(outputs), "cotangents": written(cotangents),
        "output_mask": written(out_mask) if any(m is not None for m in out_mask) else None,
        "input_gradients": written(to_inputs),
        "weight_gradients": [written(gradients.get(w.path)) for w in layer.weights],
        "loss": None if loss is None else number(loss.numpy()),
    }
    changed = any(not np.array_equal(a, b) for a, b in zip(before, after))
    golden["updated"] = written(after) if changed else None
    if one.adapt is not None:
        golden["adapt"] = written(one.adapt)
        golden["adapted"], golden["layer"] = golden["layer"], before_adapt
    return golden


def adapt(layer, data):
    """Returns how the layer was before."""
    before = keras.saving.serialize_keras_object(layer)
    if isinstance(data, list):
        layer.adapt(tf.data.Dataset.from_generator(
            lambda: iter(data),
            output_signature=tf.TensorSpec((None, *data[0].shape[1:]), data[0].dtype)))
    elif data is not None:
        layer.adapt(data)
    return before


def masks_of(one):
    """Nested as the inputs."""
    if one.mask is None:
        return None
    if isinstance(one.inputs, list):
        return [None if mask is None else np.asarray(mask) for mask in one.mask]
    return np.asarray(one.mask)


def dense(gradient):
    return tf.convert_to_tensor(gradient) if gradient is not None else None


def write_family(name):
    keras.utils.clear_session()  # which names inner layers get
    golden = {one.name: run(one) for one in importlib.import_module(name).CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in golden.items()]
    (HERE / "layers" / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_index():
    """By every name that keras.layers has for it, what a config calls the class."""
    names = {name: value.__name__ for name, value in sorted(vars(keras.layers).items())
             if inspect.isclass(value) and issubclass(value, keras.layers.Layer)}
    (HERE / "layer_index.json").write_text(json.dumps(names, indent=0) + "\n")


def write_masking(families):
    """supports_masking of each case's layer: {"FAMILY_CASE": 1}."""
    known = {f"{family}_{one.name}": int(one.layer.supports_masking)
             for family in families for one in importlib.import_module(family).CASES}
    (HERE / "layer_masking.json").write_text(json.dumps(known, indent=0) + "\n")


def main():
    every = sorted(path.stem for path in (HERE / "layers").glob("*.py"))
    for name in sys.argv[1:] or every:
        write_family(name)
    if len(sys.argv) == 1:
        write_index()
    write_masking(every)


if __name__ == "__main__":
    main()
