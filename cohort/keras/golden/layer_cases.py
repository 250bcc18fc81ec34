# SPDX-License-Identifier: Apache-2.0
"""What a file of cases in layers/ is written with; write_layers.py runs them.

    from layer_cases import case, L
    CASES = [case("same", L.Conv2D(4, 3, padding="same"), (2, 5, 6, 3))]

An input is a shape (normally distributed), integers(shape, below), an array, or a list or a
dictionary of inputs, which the layer gets as one argument.
"""

import dataclasses
import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras  # noqa: E402

L = keras.layers


@dataclasses.dataclass
class Case:
    name: str
    layer: Any                  # made already; it gets the name "x"
    inputs: Any
    training: bool = False
    mask: Any = None            # of the input, or one (or None) for each of a list
    initial_state: Any = None   # of recurrent layers, as inputs
    spread: bool = False        # layer(*inputs) instead of layer(inputs)
    names: tuple = ()           # of the arguments of spread inputs behind the first
    weights: str = "random"     # or "initial": as the layer makes them
    tolerance: float = 1e-5     # of the largest number
    gradients: bool = True      # False: TensorFlow has none of this layer
    compiled: bool = False      # by XLA: on a CPU all else of TensorFlow has channels last
    adapt: Any = None           # an array that the layer learns from first, or a list of batches


@dataclasses.dataclass
class Integers:
    shape: tuple
    below: int


def case(name, layer, inputs, **options):
    return Case(name, layer, inputs, **options)


def integers(shape, below):
    return Integers(shape, below)
