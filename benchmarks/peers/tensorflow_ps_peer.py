# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's ParameterServerStrategy with a ClusterCoordinator, for ps_peers_bench.

A chief that answers the lines of benchmarks/ps_contender.h, and tf.distribute.Server processes: two
workers and two parameter servers, which it starts, and which end with it. The recommender has no
Keras, which has no parameter servers since version 3: Adagrad is TensorFlow's own fused kernels,
and each step asks the servers for unique ids only.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import peer  # noqa: E402
from ps_job import (ALL_IDS, DENSE, IDS, RATE, TABLE, WIDTH, end_with_parent,  # noqa: E402
                    free_ports, start_task)

WORKERS, SERVERS = 2, 2
WORDS, NUMBERS, BATCH, BATCHES = 26, 13, 256, 200
ROWS, DEEP, HIDDEN = 1_000_000, 16, 64
ADAGRAD = {"lr": 0.05, "first": 0.1, "epsilon": 1e-7}


def serve_task(job, index, cluster):
    end_with_parent()
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1,
                                      inter_op_parallelism_threads=WORKERS + 1)
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index,
                         protocol="grpc", config=config).join()


def start_tasks(cluster):
    tasks = [("ps", i) for i in range(SERVERS)] + [("worker", i) for i in range(WORKERS)]
    return [start_task(__file__, job, str(index), json.dumps(cluster)) for job, index in tasks]


def partitioner(shape, dtype, **_):
    """The recommender's tables in two parts, all else in one."""
    parts = [1] * len(shape)
    if len(shape) == 2 and shape[0] == ROWS and shape[1] <= DEEP:
        parts[0] = 2
    return parts


def first_weights(shape, seed, scale):
    """As ps_recommender.cc has them."""
    mixed = np.arange(np.prod(shape), dtype=np.uint32)
    mixed += np.uint32((seed * 0x9e3779b9) & 0xffffffff)
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x85ebca6b)
    mixed = (mixed ^ (mixed >> np.uint32(13))) * np.uint32(0xc2b2ae35)
    mixed ^= mixed >> np.uint32(16)
    return ((mixed / 4294967296.0 - 0.5) * scale).astype(np.float32).reshape(shape)


def rows_of(variable, ids):
    """Gathered where the variable is."""
    with tf.device(variable.device):
        return tf.raw_ops.ResourceGather(resource=variable.handle, indices=ids, dtype=tf.float32)


def read_impressions(path):
    rows = BATCH * BATCHES
    with open(path, "rb") as file:
        words = np.fromfile(file, np.int64, rows * WORDS).reshape(BATCHES, BATCH, WORDS)
        numbers = np.fromfile(file, np.float32, rows * NUMBERS).reshape(BATCHES, BATCH, NUMBERS)
        clicked = np.fromfile(file, np.float32, rows).reshape(BATCHES, BATCH, 1)
    return words, numbers, clicked


def shards(variable):
    return list(getattr(variable, "variables", [variable]))


class Recommender:
    def __init__(self):
        def weights(name, shape, seed, scale):
            return tf.Variable(tf.constant(first_weights(shape, seed, scale)), name=name)

        self.wide = weights("wide", (ROWS, 1), 1, 0)
        self.deep = weights("deep", (ROWS, DEEP), 2, 0.1)
        self.tower = [weights("kernel", (WORDS * DEEP + NUMBERS, HIDDEN), 3, 0.2),
                      weights("bias", (HIDDEN,), 4, 0), weights("last_kernel", (HIDDEN, 1), 5, 0.5),
                      weights("last_bias", (1,), 6, 0)]
        self.all = [shard for v in [self.wide, self.deep] + self.tower for shard in shards(v)]
        self.sums = []
        for v in self.all:
            with tf.distribute.get_strategy().extended.colocate_vars_with(v):
                self.sums.append(tf.Variable(tf.fill(v.shape, ADAGRAD["first"])))

    def loss(self, words, numbers, clicked):
        unique, where = tf.unique(tf.reshape(words, [-1]))
        kernel, bias, last_kernel, last_bias = self.tower
        deep = tf.gather(tf.nn.embedding_lookup(self.deep, unique), where)
        wide = tf.gather(tf.nn.embedding_lookup(self.wide, unique), where)
        parts = [tf.reshape(deep, [BATCH, WORDS * DEEP]), numbers]
        hidden = tf.nn.relu(tf.matmul(tf.concat(parts, 1), kernel) + bias)
        logits = tf.matmul(hidden, last_kernel) + last_bias
        logits += tf.reduce_sum(tf.reshape(wide, [BATCH, WORDS, 1]), 1)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(clicked, logits))

    def train(self, words, numbers, clicked):
        with tf.GradientTape() as tape:
            loss = self.loss(words, numbers, clicked)
        for v, sums, gradient in zip(self.all, self.sums, tape.gradient(loss, self.all)):
            with tf.device(v.device):
                common = {"var": v.handle, "accum": sums.handle, "lr": ADAGRAD["lr"],
                          "epsilon": ADAGRAD["epsilon"]}
                if isinstance(gradient, tf.IndexedSlices):
                    tf.raw_ops.ResourceSparseApplyAdagradV2(
                        grad=gradient.values, indices=gradient.indices, **common)
                else:
                    tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **common)
        return loss


class Job:
    def __init__(self, cluster):
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), rpc_layer="grpc")
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.dense = tf.Variable(tf.ones((1, DENSE)), name="dense")
            self.table = tf.Variable(tf.ones((TABLE, WIDTH)), name="table")
        self.zero = tf.constant(0, tf.int64)
        self.functions = self.make_functions(tf.constant(ALL_IDS, tf.int64))

    def make_functions(self, all_ids):
        """Each step's gradient and ids are new tensors, so that every step sends them."""
        dense, table = self.dense, self.table

        @tf.function
        def nothing():
            return 0

        @tf.function
        def push(count, zero):
            for i in tf.range(count):
                gradient = tf.fill([1, DENSE], 1.0 + tf.cast(i * zero, tf.float32))
                with tf.device(dense.device):
                    tf.raw_ops.ResourceApplyGradientDescent(
                        var=dense.handle, alpha=RATE, delta=gradient)
            return count

        @tf.function
        def push_rows(count, zero):
            for i in tf.range(count):
                rows = tf.fill([IDS, WIDTH], RATE + tf.cast(i * zero, tf.float32))
                ids = all_ids + i * zero
                with tf.device(table.device):
                    tf.raw_ops.ResourceScatterSub(
                        resource=table.handle, indices=ids, updates=rows)
            return count

        @tf.function
        def pull(count, zero):
            total = tf.constant(0.0)
            for _ in tf.range(count):
                total += tf.identity(dense.read_value())[0, 0]
            return total

        @tf.function
        def pull_rows(count, zero):
            total = tf.constant(0.0)
            for i in tf.range(count):
                total += tf.identity(rows_of(table, all_ids + i * zero))[0, 0]
            return total

        return {"nothing": nothing, "push": push, "push_rows": push_rows, "pull": pull,
                "pull_rows": pull_rows}

    def load(self, path):
        with self.strategy.scope():
            self.recommender = model = Recommender()
        words, numbers, clicked = read_impressions(path)
        self.held_out = [tf.constant(each[-1]) for each in (words, numbers, clicked)]

        def dataset(_):
            slices = (words[:-1], numbers[:-1], clicked[:-1])
            return tf.data.Dataset.from_tensor_slices(slices).repeat().prefetch(4)

        self.data = iter(self.coordinator.create_per_worker_dataset(
            lambda: self.strategy.distribute_datasets_from_function(dataset)))

        @tf.function
        def train(iterator):
            return self.strategy.run(model.train, args=next(iterator))

        self.functions["train"] = train

    def schedule(self, count, name, *arguments):
        function = self.functions[name]
        for _ in range(count):
            self.coordinator.schedule(function, arguments)
        self.coordinator.join()
        return count

    def in_worker(self, name, count):
        arguments = (tf.constant(count, tf.int64), self.zero)
        return float(self.coordinator.schedule(self.functions[name], arguments).fetch())

    def run(self, command, count):
        """The nanoseconds, and a count that proves the work."""
        if command in ("schedule", "train"):
            name, arguments = ("train", (self.data,)) if command == "train" else ("nothing", ())
            return timed(lambda: self.schedule(count, name, *arguments))
        variable = self.table if command.endswith("_rows") else self.dense
        before = float(rows_of(variable, [0])[0, 0])
        nanoseconds, value = timed(lambda: self.in_worker(command, count))
        if command.startswith("pull"):
            return nanoseconds, value / before
        return nanoseconds, (before - float(rows_of(variable, [0])[0, 0])) / RATE

    def answer(self, words):
        command, *argument = words
        if command == "load":
            self.load(argument[0])
            return ""
        if command == "loss":
            return f" {float(self.recommender.loss(*self.held_out))!r}"
        nanoseconds, count = self.run(command, int(argument[0]))
        return f" {nanoseconds} {count!r}"


def timed(work):
    start = time.perf_counter_ns()
    value = work()
    return time.perf_counter_ns() - start, value


def main():
    if len(sys.argv) > 1:
        return serve_task(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
    ports = [f"127.0.0.1:{port}" for port in free_ports(SERVERS + WORKERS)]
    cluster = {"ps": ports[:SERVERS], "worker": ports[SERVERS:]}
    tasks = start_tasks(cluster)
    job = Job(cluster)
    peer.serve(job, f"tensorflow {tf.__version__} tasks {len(tasks)}",
               lambda job, words: job.answer(words))


main()
