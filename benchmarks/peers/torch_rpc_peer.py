# SPDX-License-Identifier: Apache-2.0
"""A parameter server over torch.distributed.rpc, for ps_peers_bench: a trainer that answers the
lines of benchmarks/ps_contender.h but for the recommender and the coordinator, and one process that
keeps the variables, which it starts.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

import torch
import torch.distributed.rpc as rpc

DENSE = 1 << 20
TABLE, WIDTH, IDS = 1_000_000, 32, 4096
RATE = 1 / 1024
KEPT = {}


# What the server does.

def make():
    KEPT.update(dense=torch.ones(1, DENSE), table=torch.ones(TABLE, WIDTH))


def push(gradient):
    KEPT["dense"].sub_(gradient, alpha=RATE)


def pull():
    return KEPT["dense"]


def push_rows(ids, rows):
    KEPT["table"].index_add_(0, ids, rows, alpha=-RATE)


def pull_rows(ids):
    return KEPT["table"].index_select(0, ids)


def ask(function, *arguments):
    return rpc.rpc_sync("server", function, args=arguments)


class Trainer:
    def __init__(self):
        self.ids = torch.tensor([i * (TABLE // IDS) + i * 7919 % 200 for i in range(IDS)])
        ask(make)

    def step(self, command):
        if command == "push":
            ask(push, torch.ones(1, DENSE))
            return 0.0
        if command == "push_rows":
            ask(push_rows, self.ids, torch.ones(IDS, WIDTH))
            return 0.0
        return float((ask(pull) if command == "pull" else ask(pull_rows, self.ids))[0, 0])

    def run(self, command, count):
        first = "pull_rows" if command.endswith("_rows") else "pull"
        before = self.step(first)
        start = time.perf_counter_ns()
        total = sum(self.step(command) for _ in range(count))
        nanoseconds = time.perf_counter_ns() - start
        if command.startswith("pull"):
            return nanoseconds, total / before
        return nanoseconds, (before - self.step(first)) / RATE


def options():
    return rpc.TensorPipeRpcBackendOptions(num_worker_threads=2, rpc_timeout=60)


def serve():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the trainer
    rpc.init_rpc("server", rank=1, world_size=2, rpc_backend_options=options())
    signal.pause()


def main():
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if len(sys.argv) > 1:
        return serve()
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    server = subprocess.Popen([sys.executable, __file__, "server"], stdin=subprocess.DEVNULL,
                              stdout=sys.stderr)
    rpc.init_rpc("trainer", rank=0, world_size=2, rpc_backend_options=options())
    import peer
    trainer = Trainer()
    peer.serve(trainer, f"torch {torch.__version__} server {server.pid}",
               lambda trainer, words: " {} {!r}".format(*trainer.run(words[0], int(words[1]))))


if __name__ == "__main__":
    main()
