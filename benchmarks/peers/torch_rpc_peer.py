# SPDX-License-Identifier: Apache-2.0
"""A parameter server over torch.distributed.rpc, for ps_peers_bench: a trainer that answers the
lines of benchmarks/ps_contender.h but for the recommender and the coordinator, and one process that
keeps the variables, which it starts.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed.rpc as rpc

from ps_job import ALL_IDS, DENSE, IDS, RATE, TABLE, WIDTH, end_with_parent, free_ports, start_task

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
        self.ids = torch.tensor(ALL_IDS)
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
    end_with_parent()
    rpc.init_rpc("server", rank=1, world_size=2, rpc_backend_options=options())
    signal.pause()


def main():
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if len(sys.argv) > 1:
        return serve()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_ports(1)[0]))
    server = start_task(__file__, "server")
    rpc.init_rpc("trainer", rank=0, world_size=2, rpc_backend_options=options())
    import peer
    trainer = Trainer()
    peer.serve(trainer, f"torch {torch.__version__} server {server.pid}",
               lambda trainer, words: " {} {!r}".format(*trainer.run(words[0], int(words[1]))))


if __name__ == "__main__":
    main()
