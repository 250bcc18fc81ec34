# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and Keras.

    tensorflow_peer.py fit | fit50               Keras `fit`; 50: steps_per_execution=50
    tensorflow_peer.py function | function_xla   a custom step in tf.function (jit_compile=True)
    tensorflow_peer.py mirrored                  MirroredStrategy on two logical CPUs, its custom
                                                 loop inside one tf.function
    tensorflow_peer.py multi_worker              the same under MultiWorkerMirroredStrategy (RING) in
                                                 two processes; starts the second one itself
"""

import json
import os
import socket
import subprocess
import sys
import time

import peer

KIND = sys.argv[1]
WORKERS = KIND == "multi_worker"
RANK = int(sys.argv[2]) if WORKERS and len(sys.argv) > 2 else 0
REPLICAS = 2 if KIND in ("mirrored", "multi_worker") else 1
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["KERAS_BACKEND"] = "tensorflow"
peer.pin(RANK, 1 if WORKERS else REPLICAS)
if WORKERS and RANK == 0:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    PORTS = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
elif WORKERS:
    PORTS = [int(port) for port in sys.argv[3].split(",")]
if WORKERS:
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": [f"127.0.0.1:{port}" for port in PORTS]},
        "task": {"type": "worker", "index": RANK}})

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

if not peer.DEFAULT_THREADS:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # A worker whose one thread waits for the other worker could not answer it.
    tf.config.threading.set_inter_op_parallelism_threads(REPLICAS)
if KIND == "mirrored":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * REPLICAS)


def build(workload):
    layers = keras.layers
    if workload.is_cnn:
        return keras.Sequential([
            keras.Input(peer.CNN_FEATURES),
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10)])
    kernels = workload.weights[::2]
    return keras.Sequential(
        [keras.Input((workload.row_size,))] +
        [layers.Dense(kernel.shape[1], activation="relu") for kernel in kernels[:-1]] +
        [layers.Dense(kernels[-1].shape[1])])


def adam():
    return keras.optimizers.Adam(peer.LEARNING_RATE, peer.BETA_1, peer.BETA_2, peer.EPSILON)


def shaped(workload, features):
    shape = peer.CNN_FEATURES if workload.is_cnn else (workload.row_size,)
    return np.asarray(features).reshape(features.shape[:-1] + shape)


class Base(peer.Peer):
    """The model with Keras's optimizer, and back to where it started."""

    def create(self, workload):
        if workload.replicas != REPLICAS:
            raise ValueError(f"{KIND} has {REPLICAS} replicas, the case {workload.replicas}")
        self.workload = workload
        self.model = build(workload)
        self.optimizer = adam()
        self.optimizer.build(self.model.trainable_variables)
        self.fresh = [variable.numpy() for variable in self.optimizer.variables]

    def reset(self):
        for variable, weight in zip(self.model.trainable_variables, self.workload.weights):
            variable.assign(weight)
        for variable, value in zip(self.optimizer.variables, self.fresh):
            variable.assign(value)


class EpochTime(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter_ns()

    def on_epoch_end(self, epoch, logs=None):
        self.nanoseconds = time.perf_counter_ns() - self.start
        self.loss = logs["loss"]


class Fit(Base):
    """`fit` as it comes, timed by its own epoch callbacks. Keras reports the mean loss of an
    epoch, so the loss of the last step is that step's batch evaluated before the step."""

    def init(self, workload):
        keras.backend.clear_session()
        self.create(workload)
        x, y = shaped(workload, workload.features), np.asarray(workload.labels)
        self.in_order = tf.data.Dataset.from_tensor_slices((x, y)).repeat().prefetch(4)
        self.training = self.in_order
        metrics = []
        if workload.model == "mlp_fit":  # the README's program: rows shuffled, batched, a metric
            metrics = [keras.metrics.SparseCategoricalAccuracy()]
            rows = (x.reshape(-1, workload.row_size), y.reshape(-1))
            self.training = tf.data.Dataset.from_tensor_slices(rows).shuffle(y.size).batch(
                workload.batch, drop_remainder=True).repeat().prefetch(4)
        self.model.compile(
            optimizer=self.optimizer, metrics=metrics,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=50 if KIND == "fit50" else 1)
        self.reset()
        self.train(self.in_order, 50)

    def train(self, dataset, count=None):
        clock = EpochTime()
        self.model.fit(dataset, epochs=1, steps_per_epoch=count, verbose=0, callbacks=[clock])
        return clock.nanoseconds, float(clock.loss)

    def run(self, count):
        return self.train(self.training, count)

    def loss(self, count):
        self.reset()
        self.train(self.in_order.take(count - 1))  # a dataset's end cuts Keras's 50 steps short
        batch = (count - 1) % self.workload.batches
        x = shaped(self.workload, self.workload.features[batch])
        return float(self.model.evaluate(x, np.asarray(self.workload.labels[batch]), verbose=0,
                                         batch_size=self.workload.batch, return_dict=True)["loss"])


class Function(Base):
    def init(self, workload):
        keras.backend.clear_session()
        self.create(workload)
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.batches = [(tf.constant(shaped(workload, x)), tf.constant(y))
                        for x, y in zip(workload.features, workload.labels)]
        model, optimizer = self.model, self.optimizer

        @tf.function(jit_compile=KIND == "function_xla")
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_function(y, model(x, training=True))
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        self.step = step
        self.reset()
        self.run(2)

    def reset(self):
        super().reset()
        self.index = 0

    def run(self, count):
        def steps():
            for i in range(self.index, self.index + count):
                loss = self.step(*self.batches[i % len(self.batches)])
            self.index += count
            return float(loss)

        return peer.timed(steps)


class Mirrored(Base):
    def init(self, workload):
        keras.backend.clear_session()
        self.strategy = strategy = STRATEGY or tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            self.create(workload)
        model, optimizer = self.model, self.optimizer
        loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True,
                                                                   reduction="sum")
        rows = (workload.batches * REPLICAS, workload.batch)
        x = shaped(workload, workload.features).reshape(
            rows + (peer.CNN_FEATURES if workload.is_cnn else (workload.row_size,)))
        dataset = tf.data.Dataset.from_tensor_slices((x, workload.labels.reshape(rows)))
        self.dataset = strategy.distribute_datasets_from_function(
            lambda context: dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
            .repeat().prefetch(8))

        def replica_step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_function(y, model(x, training=True)) / workload.global_batch
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        @tf.function
        def steps(iterator, count):
            for _ in tf.range(count - 1):
                strategy.run(replica_step, args=next(iterator))
            loss = strategy.run(replica_step, args=next(iterator))
            return strategy.reduce("sum", loss, axis=None)

        self.steps = steps
        self.reset()
        self.run(2)

    def reset(self):
        with self.strategy.scope():
            super().reset()
        self.iterator = iter(self.dataset)

    def run(self, count):
        return peer.timed(lambda: float(self.steps(self.iterator, tf.constant(count))))

    def divergence(self):
        worst = 0.0
        for variable in self.model.trainable_variables:
            copies = [copy.numpy() for copy in self.strategy.experimental_local_results(
                getattr(variable, "value", variable))]
            worst = max([worst] + [float(np.abs(copy - copies[0]).max()) for copy in copies])
        return worst


class Leader:
    """Worker 0: every call is made in the second process, too."""

    def __init__(self, follower):
        self.follower = follower
        self.peer = Mirrored()

    def __getattr__(self, name):
        def call(*arguments):
            words = [a.path if isinstance(a, peer.Workload) else str(a) for a in arguments]
            print(name, *words, file=self.follower.stdin, flush=True)
            return getattr(self.peer, name)(*arguments)

        return call


def follow():
    follower = Mirrored()
    for line in sys.stdin:
        name, *words = line.split()
        if name == "init":
            follower.init(peer.Workload(words[0]))
        else:
            getattr(follower, name)(*[int(word) for word in words])
    os._exit(0)


def workers_strategy():
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING))


STRATEGY = None
if WORKERS and RANK > 0:
    STRATEGY = workers_strategy()
    follow()
KINDS = {"fit": Fit, "fit50": Fit, "function": Function, "function_xla": Function,
         "mirrored": Mirrored}
if WORKERS:
    ports = ",".join(str(port) for port in PORTS)
    second = subprocess.Popen([sys.executable, __file__, KIND, "1", ports], stdin=subprocess.PIPE,
                              text=True, stdout=subprocess.DEVNULL)
    STRATEGY = workers_strategy()
    subject = Leader(second)
else:
    subject = KINDS[KIND]()
peer.serve(subject, f"tensorflow {tf.__version__} keras {keras.__version__}")
