# SPDX-License-Identifier: Apache-2.0
"""PyTorch, for keras_bench: the same models by torch.nn, with the weights that Cohort wrote.

    keras_torch_peer.py eager | compiled
"""

import os
import sys

import peer

KIND = sys.argv[1]
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
peer.pin(0)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import keras_task  # noqa: E402
from torch_weights import Block, ChannelsLast, Weights  # noqa: E402

if not peer.DEFAULT_THREADS:
    torch.set_num_threads(1)
torch.set_flush_denormal(True)


class Residual(nn.Module):
    def __init__(self, w, name, stride):
        super().__init__()
        self.body = nn.Sequential(w.conv_bn(name + "_1", stride), nn.ReLU(), w.conv_bn(name + "_2"))
        self.skip = w.conv_bn(name + "_skip", stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


class Lstm(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.words, self.lstm, self.dense = w.embedding("words"), w.lstm("lstm"), w.dense("dense")

    def forward(self, x):
        return self.dense(self.lstm(self.words(x))[0][:, -1])


class Transformer(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.words, self.dense = w.embedding("words"), w.dense("dense")
        self.blocks = nn.Sequential(Block(w, "a"), Block(w, "b"))

    def forward(self, x):
        return self.dense(self.blocks(self.words(x)).mean(1))


class WideDeep(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.deep, self.wide = w.embedding("deep"), w.embedding("wide")
        self.a, self.b, self.c = w.dense("dense_a"), w.dense("dense_b"), w.dense("dense_c")

    def forward(self, ids, numbers):
        x = torch.cat([self.deep(ids).flatten(1), numbers], 1)
        x = torch.relu(self.b(torch.relu(self.a(x))))
        return self.c(torch.cat([x, self.wide(ids).flatten(1)], 1))


def build(task):
    w = Weights(task.weights)
    model = task.model
    if model == "mlp":
        return nn.Sequential(w.dense("dense_a"), nn.ReLU(), w.dense("dense_b"), nn.ReLU(),
                             w.dense("dense_c"))
    if model == "cnn":
        return nn.Sequential(w.conv_bn("a"), nn.ReLU(), nn.MaxPool2d(2), w.conv_bn("b"), nn.ReLU(),
                             nn.MaxPool2d(2), ChannelsLast(), w.dense("dense"))
    if model == "resnet20":
        blocks = [Residual(w, f"s{s}b{b}", 2 if s > 0 and b == 0 else 1)
                  for s in range(3) for b in range(3)]
        return nn.Sequential(w.conv_bn("stem"), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1),
                             nn.Flatten(), w.dense("dense"))
    return {"lstm": Lstm, "transformer": Transformer, "wide_deep": WideDeep}[model](w)


class TorchPeer:
    def init(self, task):
        if task.replicas != 1:
            raise ValueError(f"{KIND} has 1 replica, the case {task.replicas}")
        self.task = task
        self.images = task.model in ("cnn", "resnet20")
        self.data = [self.tensors(*task.batch_at(i)) for i in range(task.batches)]
        self.reset()

    def tensors(self, x, y):
        x = [torch.from_numpy(np.array(part)) for part in (x if isinstance(x, tuple) else (x,))]
        if self.images:
            x = [part.permute(0, 3, 1, 2) for part in x]  # in memory, channels are last
        return x, torch.from_numpy(np.array(y)).long()

    def reset(self):
        model = build(self.task)
        if self.images and KIND != "eager":
            model = model.to(memory_format=torch.channels_last)
        self.model = model
        criterion = nn.CrossEntropyLoss()
        self.forward = lambda x, y: criterion(model(*x), y)
        if KIND == "compiled":
            torch._dynamo.reset()
            self.forward = torch.compile(self.forward, dynamic=False)
        weights = [p for p in model.parameters() if p.requires_grad]
        fused = None if KIND == "eager" else True
        if self.task.model == "resnet20":
            self.optimizer = torch.optim.SGD(weights, lr=0.001, momentum=0.9, fused=fused)
        else:
            self.optimizer = torch.optim.Adam(weights, eps=1e-12, fused=fused)
        self.index = 0

    def steps(self, count):
        losses = []
        for _ in range(count):
            self.optimizer.zero_grad()
            loss = self.forward(*self.data[self.index % len(self.data)])
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
            self.index += 1
        return losses

    def curve(self, steps):
        self.reset()
        return [float(loss) for loss in self.steps(steps)]

    def run(self, steps):
        return peer.timed(lambda: self.steps(steps))[0]

    def predict(self):
        if not hasattr(self, "rows"):
            self.rows = torch.from_numpy(self.task.many_rows())
        with torch.inference_mode():
            return float(torch.cat([self.model(part) for part in self.rows.split(32)]).abs().sum())


keras_task.serve(TorchPeer(), f"torch {torch.__version__}")
