# SPDX-License-Identifier: Apache-2.0
"""JAX, for gpu_bench: the whole step under `jit` with donated weights, moments and statistics.

    gpu_jax_peer.py KIND DEVICE     DEVICE: cuda, or cpu to try it out

    jit      attention as XLA makes it
    cudnn    attention by cuDNN (bfloat16 on a GPU)
"""

import os
import sys

KIND, DEVICE = sys.argv[1:3]
os.environ["JAX_PLATFORMS"] = DEVICE
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import gpu_task  # noqa: E402

TABLES = ("deep.embeddings", "wide.embeddings")
MATMUL_PRECISION = {"float32": "float32", "tf32": "tensorfloat32", "bf16": "default"}


def first_weights(task):
    """By Keras's names; query, key and value are one product."""
    weights = {name: np.asarray(value) for name, value in task.weights.items()
               if ".moving_" not in name}
    for name in [name for name in weights if name.endswith("_seen.query.kernel")]:
        layer = name.removesuffix(".query.kernel")
        width = weights[name].shape[0]
        parts = [f"{layer}.{part}." for part in ("query", "key", "value")]
        weights[layer + ".kernel"] = np.concatenate(
            [weights.pop(part + "kernel").reshape(width, width) for part in parts], 1)
        weights[layer + ".bias"] = np.concatenate(
            [weights.pop(part + "bias").reshape(width) for part in parts])
        out = f"{layer}.attention_output."
        weights[out + "kernel"] = weights[out + "kernel"].reshape(width, width)
    return weights


class Forward:
    """One pass: weights and statistics by name, computing in `dtype`."""

    def __init__(self, weights, statistics, dtype):
        self.w, self.statistics, self.dtype = weights, dict(statistics), dtype

    def dense(self, name, x):
        kernel, bias = self.w[name + ".kernel"], self.w[name + ".bias"]
        return x @ kernel.astype(x.dtype) + bias.astype(x.dtype)

    def conv_bn(self, name, x, stride=1, padding="SAME"):
        x = jax.lax.conv_general_dilated(
            x, self.w[name + "_conv.kernel"].astype(x.dtype), (stride, stride), padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = x.astype(jnp.float32)
        mean = y.mean((0, 1, 2))
        variance = jnp.maximum(jnp.square(y).mean((0, 1, 2)) - jnp.square(mean), 0)
        for what, value in (("mean", mean), ("variance", variance)):
            old = self.statistics[f"{name}_bn.{what}"]
            self.statistics[f"{name}_bn.{what}"] = 0.99 * old + 0.01 * jax.lax.stop_gradient(value)
        scale = jax.lax.rsqrt(variance + 1e-3) * self.w[name + "_bn.gamma"]
        return ((y - mean) * scale + self.w[name + "_bn.beta"]).astype(x.dtype)

    def norm(self, name, x):
        y = x.astype(jnp.float32)
        y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-3)
        return (y * self.w[name + ".gamma"] + self.w[name + ".beta"]).astype(x.dtype)

    def attention(self, name, x, heads):
        rows, steps, width = x.shape
        parts = self.dense(name, x).reshape(rows, steps, 3, heads, width // heads)
        y = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2],
                                         implementation="cudnn" if KIND == "cudnn" else "xla")
        return self.dense(name + ".attention_output", y.reshape(rows, steps, width))


def max_pool(x, size, stride, padding):
    pad = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1),
                                 (1, stride, stride, 1), pad)


def mlp(f, task, x):
    return jax.nn.relu(f.dense("dense_b", jax.nn.relu(f.dense("dense_a", x))))


def cnn(f, task, x):
    x = max_pool(jax.nn.relu(f.conv_bn("a", x)), 2, 2, 0)
    x = max_pool(jax.nn.relu(f.conv_bn("b", x)), 2, 2, 0)
    return x.reshape(x.shape[0], -1)


def bottleneck(f, name, x, stride, widens):
    y = jax.nn.relu(f.conv_bn(name + "_1", x, stride))
    y = f.conv_bn(name + "_3", jax.nn.relu(f.conv_bn(name + "_2", y)))
    return jax.nn.relu(y + (f.conv_bn(name + "_skip", x, stride) if widens else x))


def resnet50(f, task, x):
    x = jax.nn.relu(f.conv_bn("stem", x, 2, [(3, 3), (3, 3)]))
    x = max_pool(x, 3, 2, 1)
    for stage in range(4):
        for block in range(task.count(f"s{stage}b")):
            x = bottleneck(f, f"s{stage}b{block}", x, 2 if stage > 0 and block == 0 else 1,
                           block == 0)
    return x.astype(jnp.float32).mean((1, 2))


def transformer(f, task, x):
    heads = task.weights["b0_seen.query.kernel"].shape[1]
    for name in [f"b{i}" for i in range(task.count("b"))]:
        x = f.norm(name + "_norm1", x + f.attention(name + "_seen", x, heads))
        wide = jax.nn.relu(f.dense(name + "_wide", x))
        x = f.norm(name + "_norm2", x + f.dense(name + "_narrow", wide))
    return x.astype(jnp.float32).mean(1)


def wide_deep(f, task, deep, wide, numbers):
    x = jnp.concatenate([deep.reshape(deep.shape[0], -1), numbers], 1)
    return jnp.concatenate([mlp(f, task, x), wide.reshape(wide.shape[0], -1)], 1)


BODIES = {"mlp": mlp, "cnn": cnn, "resnet50": resnet50, "transformer": transformer,
          "wide_deep": wide_deep}


def loss_function(task):
    dtype = jnp.bfloat16 if task.precision == "bf16" else jnp.float32
    head = "dense_c" if task.model == "mlp" else "dense"

    def loss_of(weights, statistics, inputs, y):
        f = Forward(weights, statistics, dtype)
        x = BODIES[task.model](f, task, *[part.astype(dtype) for part in inputs])
        logits = f.dense(head, x.astype(jnp.float32))
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss, f.statistics

    return loss_of


def make_step(task, optimizer):
    loss_of = loss_function(task)

    def step(tables, weights, moments, statistics, inputs, y):
        if tables:  # JAX has no sparse gradients: rows are looked up before, and added to by hand
            ids, numbers = inputs
            rows = [tables[name][ids] for name in TABLES]

            def of_rows(weights, rows):
                return loss_of(weights, statistics, (*rows, numbers), y)

            (loss, statistics), (gradients, of_each) = jax.value_and_grad(
                of_rows, (0, 1), has_aux=True)(weights, rows)
            tables = {name: tables[name].at[ids].add(-task.learning_rate * row)
                      for name, row in zip(TABLES, of_each)}
        else:
            (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(
                weights, statistics, inputs, y)
        updates, moments = optimizer.update(gradients, moments, weights)
        return tables, optax.apply_updates(weights, updates), moments, statistics, loss

    return jax.jit(step, donate_argnums=(0, 1, 2, 3))


class JaxPeer(gpu_task.Subject):
    def init(self, task):
        self.drop()
        self.task = task
        jax.config.update("jax_default_matmul_precision", MATMUL_PRECISION[task.precision])
        self.batches = [(tuple(jnp.asarray(part) for part in x), jnp.asarray(y))
                        for x, y in task.all_batches()]
        if task.optimizer == "adam":
            self.optimizer = optax.adam(task.learning_rate, eps=1e-12)
        else:
            self.optimizer = optax.sgd(task.learning_rate, task.momentum or None)
        self.first = first_weights(task)
        self.jitted = make_step(task, self.optimizer)
        self.reset()
        for _ in range(3):
            self.step()
        self.wait()

    def reset(self):
        tables = {name: jnp.array(self.first[name]) for name in TABLES if name in self.first}
        weights = {name: jnp.array(value) for name, value in self.first.items()
                   if name not in TABLES}
        statistics = {}
        for name, value in weights.items():
            if name.endswith("_bn.gamma"):
                layer = name.removesuffix(".gamma")
                statistics[layer + ".mean"] = jnp.zeros_like(value)
                statistics[layer + ".variance"] = jnp.ones_like(value)
        self.state = (tables, weights, self.optimizer.init(weights), statistics)
        self.index = 0

    def step(self):
        inputs, y = self.batches[self.index % len(self.batches)]
        self.index += 1
        *self.state, loss = self.jitted(*self.state, inputs, y)
        return loss

    def wait(self):
        jax.block_until_ready(self.state)

    def drop(self):
        for name in ("batches", "state", "jitted", "first"):
            self.__dict__.pop(name, None)


gpu_task.serve(JaxPeer(), f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
