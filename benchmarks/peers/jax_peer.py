# SPDX-License-Identifier: Apache-2.0
"""JAX, at its best on a CPU: the whole step under `jit` with donated weights and moments.

    jax_peer.py jit      one device
    jax_peer.py spmd     as many CPU devices as the workload has replicas (two), one program over
                         all of them, batches sharded, weights replicated
"""

import os
import sys

import peer

KIND = sys.argv[1]
DEVICES = 2 if KIND == "spmd" else 1
FLAGS = f"--xla_force_host_platform_device_count={DEVICES}"
if not peer.DEFAULT_THREADS:
    FLAGS += " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = FLAGS
os.environ["JAX_PLATFORMS"] = "cpu"
peer.pin(0, DEVICES)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def mlp(weights, x):
    for kernel, bias in zip(weights[:-2:2], weights[1:-2:2]):
        x = jax.nn.relu(x @ kernel + bias)
    return x @ weights[-2] + weights[-1]


def cnn(weights, x):
    for kernel, bias in (weights[0:2], weights[2:4]):
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return mlp(weights[4:], x.reshape(x.shape[0], -1))


class JaxPeer(peer.Peer):
    def init(self, workload):
        if workload.replicas != DEVICES:
            raise ValueError(f"{KIND} has {DEVICES} devices, the case {workload.replicas}")
        self.workload = workload
        mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("replica",))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        sharded = NamedSharding(mesh, PartitionSpec("replica"))
        shape = (-1,) + (peer.CNN_FEATURES if workload.is_cnn else (workload.row_size,))
        self.batches = [
            (jax.device_put(x.reshape(shape), sharded),
             jax.device_put(y.astype(np.int32), sharded))
            for x, y in zip(workload.features, workload.labels)]
        self.optimizer = optax.adam(peer.LEARNING_RATE, peer.BETA_1, peer.BETA_2, peer.EPSILON)
        forward = cnn if workload.is_cnn else mlp

        def loss_of(weights, x, y):
            logits = forward(weights, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        def step(weights, state, x, y):
            loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
            updates, state = self.optimizer.update(gradients, state, weights)
            return optax.apply_updates(weights, updates), state, loss

        shardings = {}
        if DEVICES > 1:
            shardings = {"in_shardings": (self.replicated, self.replicated, sharded, sharded),
                         "out_shardings": self.replicated}
        self.step = jax.jit(step, donate_argnums=(0, 1), **shardings)
        self.reset()
        self.run(1)

    def reset(self):
        weights = [jnp.array(weight) for weight in self.workload.weights]
        self.weights = jax.device_put(weights, self.replicated)
        self.state = jax.device_put(self.optimizer.init(weights), self.replicated)
        self.index = 0
        jax.block_until_ready((self.weights, self.state))

    def run(self, count):
        def steps():
            weights, state, loss = self.weights, self.state, None
            for i in range(self.index, self.index + count):
                x, y = self.batches[i % len(self.batches)]
                weights, state, loss = self.step(weights, state, x, y)
                if DEVICES > 1 and i % 4 == 3:  # a longer queue makes the devices' threads starve
                    jax.block_until_ready(loss)
            jax.block_until_ready(weights)
            self.weights, self.state = weights, state
            self.index += count
            return loss

        nanoseconds, loss = peer.timed(steps)
        return nanoseconds, float(loss)

    def divergence(self):
        worst = 0.0
        for weight in self.weights:
            copies = [np.asarray(shard.data) for shard in weight.addressable_shards]
            worst = max([worst] + [float(np.abs(copy - copies[0]).max()) for copy in copies])
        return worst


peer.serve(JaxPeer(), f"jax {jax.__version__} optax {optax.__version__}")
