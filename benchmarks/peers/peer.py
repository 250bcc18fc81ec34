# SPDX-License-Identifier: Apache-2.0
"""What all Python peers share: the pipe, and the workload file of step_bench.

step_bench starts a peer once and sends it lines; a peer answers each with one line:

    (start)         -> ready <versions>
    init <path>     -> ok                        build the model, compile, forget the last case
    loss <steps>    -> ok <loss> <divergence>    from the initial weights, the loss of the last of
                                                 <steps> steps and how far replicas' weights differ
    run <steps>     -> ok <nanoseconds> <loss>   go on training; the time of the steps alone
    quit

Anything else that a library prints goes to standard error.
"""

import os
import sys
import time
import traceback

import numpy as np

LEARNING_RATE = 1e-3
# The frameworks apply epsilon on different sides of the bias correction; so small a one makes no
# difference, and all contenders come to the same losses.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-12
CNN_FEATURES = (28, 28, 1)


def cores():
    """The cores that replicas are pinned to, as step_bench chose them."""
    return [int(core) for core in os.environ.get("COHORT_BENCH_CORES", "0").split(",")]


# As many threads as a framework chooses by itself, on all cores, instead of one per replica.
DEFAULT_THREADS = os.environ.get("COHORT_BENCH_THREADS") == "default"


def pin(first, count=1):
    """Pins this process to `count` cores from the `first`."""
    if DEFAULT_THREADS:
        return
    usable = cores()
    os.sched_setaffinity(0, {usable[(first + i) % len(usable)] for i in range(count)})


class Workload:
    """A file of `export_workload` (workload.h): one model, its weights, its batches."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            lines = file.read(4096).rstrip(b"\0").decode().splitlines()
        if lines[0] != "cohort-workload-1":
            raise ValueError(f"{path} is no workload file")
        fields = dict(line.split(" ", 1) for line in lines[1:])
        self.model = fields["model"]
        self.batch = int(fields["batch"])
        self.replicas = int(fields["replicas"])
        self.batches = int(fields["batches"])
        self.global_batch = self.batch * self.replicas
        self.is_cnn = self.model == "cnn"

        self.weights = []
        offset = 4096
        for text in fields["shapes"].split():
            shape = tuple(int(size) for size in text.split("x"))
            self.weights.append(np.array(np.memmap(path, np.float32, "r", offset, shape)))
            offset += self.weights[-1].nbytes
        self.row_size = 784 if self.is_cnn else self.weights[0].shape[0]
        shape = (self.batches, self.global_batch, self.row_size)
        self.features = np.memmap(path, np.float32, "r", int(fields["features_offset"]), shape)
        self.labels = np.memmap(path, np.int64, "r", int(fields["labels_offset"]), shape[:2])


class Peer:
    """What a peer defines: init(workload), reset(), run(count) -> (nanoseconds, loss)."""

    def loss(self, count):
        self.reset()
        return self.run(count)[1]

    def divergence(self):
        return 0.0


def timed(steps):
    """Calls `steps`, which returns a loss when all is done; answers (nanoseconds, loss)."""
    start = time.perf_counter_ns()
    loss = steps()
    return time.perf_counter_ns() - start, loss


def answer(peer, words):
    command, argument = words
    if command == "init":
        peer.init(Workload(argument))
        return ""
    if command == "loss":
        loss = peer.loss(int(argument))
        return f" {loss!r} {peer.divergence()!r}"
    if command == "run":
        nanoseconds, loss = peer.run(int(argument))
        return f" {nanoseconds} {loss!r}"
    raise ValueError(f"unknown command {command}")


def serve(peer, versions, answer=answer):
    """Answers commands until `quit` or the end of the pipe: answer(peer, (command, argument))."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(f"ready {versions}", file=out, flush=True)
    for line in sys.stdin:
        words = line.split(None, 1)
        if words == ["quit"]:
            break
        try:
            print("ok" + answer(peer, [word.strip() for word in words]), file=out, flush=True)
        except Exception as error:  # the benchmark goes on without this peer
            traceback.print_exc()
            text = " ".join(str(error).split())[:200]
            print(f"error {type(error).__name__}: {text}", file=out, flush=True)
    sys.stderr.flush()
    os._exit(0)  # no library's thread pool may hold up the benchmark
