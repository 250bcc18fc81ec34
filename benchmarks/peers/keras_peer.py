# SPDX-License-Identifier: Apache-2.0
"""Keras, for keras_bench: opens the `.keras` file that Cohort wrote.

    keras_peer.py jax fit | fit8          `fit` on JAX; 8: steps_per_execution=8
    keras_peer.py jax step                the whole step under jax.jit, by stateless_call
    keras_peer.py jax parallel            `fit` on two devices, keras.distribution.DataParallel
    keras_peer.py tensorflow fit | fit8   `fit` on TensorFlow, as graphs
    keras_peer.py tensorflow xla          the same with jit_compile=True
    keras_peer.py tensorflow mirrored     `fit` on two logical devices, MirroredStrategy
"""

import contextlib
import os
import sys
import time

import peer

BACKEND, KIND = sys.argv[1:3]
REPLICAS = 2 if KIND in ("parallel", "mirrored") else 1
AT_ONCE = 8 if KIND == "fit8" else 1  # steps_per_execution
os.environ["KERAS_BACKEND"] = BACKEND
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["JAX_PLATFORMS"] = "cpu"
FLAGS = f"--xla_force_host_platform_device_count={REPLICAS}"
if not peer.DEFAULT_THREADS:
    FLAGS += " --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["XLA_FLAGS"] = FLAGS
peer.pin(0, REPLICAS)

import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_task  # noqa: E402

if BACKEND == "tensorflow":
    import tensorflow as tf

    if not peer.DEFAULT_THREADS:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(REPLICAS)
    if KIND == "mirrored":
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
else:
    import jax


class EpochTime(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter_ns()

    def on_epoch_end(self, epoch, logs=None):
        self.nanoseconds = time.perf_counter_ns() - self.start
        self.loss = float(logs["loss"])


class Fit:
    def init(self, task):
        if task.replicas != REPLICAS:
            raise ValueError(f"{KIND} has {REPLICAS} replicas, the case {task.replicas}")
        keras.backend.clear_session()
        self.task = task
        scope = contextlib.nullcontext()
        if KIND == "mirrored":
            scope = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()
        if KIND == "parallel":
            keras.distribution.set_distribution(keras.distribution.DataParallel())
        with scope:
            self.model = keras.models.load_model(task.model_file)
            self.compile(AT_ONCE)
        self.kept = [(v, np.array(v)) for v in self.model.variables + self.model.optimizer.variables]

    def compile(self, at_once):
        self.model.compile(optimizer=self.model.optimizer, loss=self.model.loss,
                           steps_per_execution=at_once,
                           jit_compile=BACKEND == "jax" or KIND == "xla")

    def reset(self):
        for variable, value in self.kept:
            variable.assign(value)

    def batches(self, first):
        if BACKEND == "tensorflow":
            parts = [self.task.batch_at(i) for i in range(self.task.batches)]
            x = tuple(np.stack(p) for p in zip(*[x if isinstance(x, tuple) else (x,) for x, _ in parts]))
            y = np.stack([y for _, y in parts])
            data = tf.data.Dataset.from_tensor_slices((x if len(x) > 1 else x[0], y))
            return data.repeat().skip(first).prefetch(4)

        def endless():
            i = first
            while True:
                yield self.task.batch_at(i)
                i += 1

        return endless()

    def train(self, first, steps):
        clock = EpochTime()
        self.model.fit(self.batches(first), steps_per_epoch=steps, verbose=0, callbacks=[clock])
        return clock

    def curve(self, steps):
        if AT_ONCE > 1:
            self.compile(1)
        self.reset()
        losses = [self.train(i, 1).loss for i in range(steps)]
        if AT_ONCE > 1:
            self.compile(AT_ONCE)
        return losses

    def run(self, steps):
        whole = -(-steps // AT_ONCE) * AT_ONCE  # Keras makes no part of an execution
        return self.train(0, whole).nanoseconds * steps // whole

    def predict(self):
        if not hasattr(self, "rows"):
            self.rows = self.task.many_rows()
        return float(np.abs(self.model.predict(self.rows, batch_size=32, verbose=0)).sum())


class Step(Fit):
    """No fit: what JAX makes of a whole step."""

    def init(self, task):
        super().init(task)
        model, optimizer, loss_of = self.model, self.model.optimizer, self.model.loss

        def step(state, x, y):
            weights, others, slots = state

            def loss(weights):
                predictions, changed = model.stateless_call(weights, others, x, training=True)
                return loss_of(y, predictions), changed

            (value, changed), gradients = jax.value_and_grad(loss, has_aux=True)(weights)
            weights, slots = optimizer.stateless_apply(slots, gradients, weights)
            return (weights, changed, slots), value

        self.step = jax.jit(step, donate_argnums=0)
        self.data = []
        for i in range(task.batches):
            x, y = task.batch_at(i)
            x = list(x) if isinstance(x, tuple) else x  # as the model's inputs are kept
            self.data.append(jax.device_put((x, y)))
        self.reset()

    def reset(self):
        super().reset()
        groups = (self.model.trainable_variables, self.model.non_trainable_variables,
                  self.model.optimizer.variables)
        self.state = tuple([jax.numpy.array(v.value) for v in group] for group in groups)
        self.index = 0

    def steps(self, count):
        losses = []
        for _ in range(count):
            self.state, loss = self.step(self.state, *self.data[self.index % len(self.data)])
            losses.append(loss)
            self.index += 1
        jax.block_until_ready(self.state)
        return losses

    def curve(self, steps):
        self.reset()
        return [float(loss) for loss in self.steps(steps)]

    def run(self, steps):
        return peer.timed(lambda: self.steps(steps))[0]


keras_task.serve(Step() if KIND == "step" else Fit(), f"keras {keras.__version__} on {BACKEND}")
