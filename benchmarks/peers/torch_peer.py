# SPDX-License-Identifier: Apache-2.0
"""PyTorch.

    torch_peer.py eager      torch.optim.Adam as it comes
    torch_peer.py fused      Adam(fused=True); convolutions channels-last
    torch_peer.py compiled   the same with forward and loss under torch.compile
    torch_peer.py ddp        DistributedDataParallel over Gloo; starts its second process itself
"""

import os
import subprocess
import sys
import tempfile

import peer

KIND = sys.argv[1]
RANK = int(sys.argv[2]) if len(sys.argv) > 2 else 0
REPLICAS = 2 if KIND == "ddp" else 1
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
peer.pin(RANK)

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

if not peer.DEFAULT_THREADS:
    torch.set_num_threads(1)
torch.set_flush_denormal(True)


def build(workload):
    if workload.is_cnn:
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))
        return model if KIND == "eager" else model.to(memory_format=torch.channels_last)
    layers = []
    for kernel in workload.weights[::2]:
        layers += [nn.Linear(*kernel.shape), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def torch_layout(workload):
    """The workload's weights (Keras's layout) as PyTorch orders them."""
    for weight in workload.weights:
        if weight.ndim == 4:
            weight = weight.transpose(3, 2, 0, 1)
        elif weight.ndim == 2:
            if weight.shape[0] == 1600:  # rows after Flatten: (5, 5, 64) there, (64, 5, 5) here
                weight = weight.reshape(5, 5, 64, -1).transpose(2, 0, 1, 3).reshape(1600, -1)
            weight = weight.T
        yield torch.from_numpy(np.ascontiguousarray(weight))


class TorchPeer(peer.Peer):
    def init(self, workload):
        if workload.replicas != REPLICAS:
            raise ValueError(f"{KIND} has {REPLICAS} replicas, the case {workload.replicas}")
        self.workload = workload
        rows = slice(RANK * workload.batch, (RANK + 1) * workload.batch)
        shape = (-1, 1, 28, 28) if workload.is_cnn else (-1, workload.row_size)
        self.batches = []
        for x, y in zip(workload.features, workload.labels):
            x = torch.from_numpy(np.array(x[rows])).reshape(shape)
            if workload.is_cnn and KIND != "eager":
                x = x.contiguous(memory_format=torch.channels_last)
            self.batches.append((x, torch.from_numpy(np.array(y[rows]))))

        self.model = model = build(workload)
        if KIND == "ddp":
            model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        criterion = nn.CrossEntropyLoss()
        self.forward = lambda x, y: criterion(model(x), y)
        if KIND == "compiled":
            torch._dynamo.reset()
            self.forward = torch.compile(self.forward, dynamic=False)
        self.reset()
        self.run(2)

    def reset(self):
        with torch.no_grad():
            for parameter, weight in zip(self.model.parameters(), torch_layout(self.workload)):
                parameter.copy_(weight)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), peer.LEARNING_RATE, (peer.BETA_1, peer.BETA_2), peer.EPSILON,
            fused=None if KIND == "eager" else True)
        self.index = 0

    def run(self, count):
        def steps():
            for i in range(self.index, self.index + count):
                self.optimizer.zero_grad()
                loss = self.forward(*self.batches[i % len(self.batches)])
                loss.backward()
                self.optimizer.step()
            self.index += count
            return loss.detach()

        if REPLICAS > 1:
            dist.barrier()
        nanoseconds, loss = peer.timed(steps)
        if REPLICAS > 1:
            dist.all_reduce(loss)
        return nanoseconds, float(loss) / REPLICAS

    def divergence(self):
        if REPLICAS == 1:
            return 0.0
        mine = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        all_ranks = [torch.empty_like(mine) for _ in range(REPLICAS)]
        dist.all_gather(all_ranks, mine)
        return float((all_ranks[0] - all_ranks[1]).abs().max())


class Leader:
    """Rank 0 of DDP: every call is made in the second process, too."""

    def __init__(self):
        meeting = tempfile.NamedTemporaryFile(prefix="cohort-ddp-", delete=False)
        meeting.close()
        os.unlink(meeting.name)
        self.follower = subprocess.Popen(
            [sys.executable, __file__, KIND, "1", meeting.name], stdin=subprocess.PIPE, text=True,
            stdout=subprocess.DEVNULL)
        dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0,
                                world_size=REPLICAS)
        self.peer = TorchPeer()

    def __getattr__(self, name):
        def call(*arguments):
            words = [a.path if isinstance(a, peer.Workload) else str(a) for a in arguments]
            print(name, *words, file=self.follower.stdin, flush=True)
            return getattr(self.peer, name)(*arguments)

        return call


def follow(meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=RANK,
                            world_size=REPLICAS)
    follower = TorchPeer()
    for line in sys.stdin:
        name, *words = line.split()
        if name == "init":
            follower.init(peer.Workload(words[0]))
        else:
            getattr(follower, name)(*[int(word) for word in words])
    os._exit(0)


if RANK > 0:
    follow(sys.argv[3])
peer.serve(Leader() if KIND == "ddp" else TorchPeer(), f"torch {torch.__version__}")
