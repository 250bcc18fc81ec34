# SPDX-License-Identifier: Apache-2.0
"""Gloo's all_reduce as PyTorch has it, between processes of this machine; rank 0 is on the pipe."""

import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import peer


def obey(order, numbers):
    dist.broadcast(order, 0)
    size, steps = order.tolist()
    if steps == 0:
        return None
    if size not in numbers:
        numbers.clear()
        numbers[size] = torch.empty(size // 4)
    x = numbers[size].fill_(dist.get_rank() + 1)
    dist.all_reduce(x)
    ranks = dist.get_world_size()
    if x[-1].item() != ranks * (ranks + 1) / 2:
        raise RuntimeError("wrong sum")
    x.zero_()
    dist.barrier()
    start = time.perf_counter_ns()
    for _ in range(steps):
        dist.all_reduce(x)
    dist.barrier()
    return time.perf_counter_ns() - start


def join(rank, ranks, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=ranks)


def follow(rank, ranks, path):
    join(rank, ranks, path)
    numbers = {}
    while obey(torch.zeros(2, dtype=torch.int64), numbers) is not None:
        pass


class Gloo:
    def __init__(self):
        self.numbers = {}

    def run(self, words):
        return f" {obey(torch.tensor([int(w) for w in words]), self.numbers)}"


if __name__ == "__main__":
    ranks, path = int(sys.argv[1]), sys.argv[2]
    context = mp.get_context("spawn")
    others = [context.Process(target=follow, args=(r, ranks, path), daemon=True)
              for r in range(1, ranks)]
    for other in others:
        other.start()
    join(0, ranks, path)
    peer.serve(Gloo(), f"torch {torch.__version__}", lambda gloo, words: gloo.run(words[1].split()))
