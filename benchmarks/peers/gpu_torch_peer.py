# SPDX-License-Identifier: Apache-2.0
"""PyTorch, for gpu_bench: the models by torch.nn, fused optimizers, channels-last images.

    gpu_torch_peer.py KIND DEVICE     DEVICE: cuda, or cpu to try it out

    eager            operation by operation
    graph            the whole step captured once by torch.cuda.CUDAGraph, batches copied into it
    compiled         forward and loss under torch.compile
    reduce_overhead  the same with mode="reduce-overhead", which captures CUDA graphs itself
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

import gpu_task
from torch_weights import ChannelsLast, Weights

KIND, DEVICE = sys.argv[1:3]
ON_GPU = DEVICE == "cuda"
WARM_STEPS = 3


class Attention(nn.Module):
    """Query, key and value by one product."""

    def __init__(self, w, name):
        super().__init__()
        width, self.heads, _ = w(f"{name}.query.kernel").shape
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.projections = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        out = f"{name}.attention_output"
        w.fill([
            (self.projections.weight,
             torch.cat([w(part + ".kernel").reshape(width, width).T for part in parts])),
            (self.projections.bias, torch.cat([w(part + ".bias").flatten() for part in parts])),
            (self.output.weight, w(out + ".kernel").reshape(width, width).T),
            (self.output.bias, w(out + ".bias"))])

    def forward(self, x):
        rows, steps, width = x.shape
        parts = self.projections(x).view(rows, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*parts.unbind(0))
        return self.output(y.transpose(1, 2).reshape(rows, steps, width))


class Block(nn.Module):
    def __init__(self, w, name):
        super().__init__()
        self.seen = Attention(w, name + "_seen")
        self.norm1, self.norm2 = w.norm(name + "_norm1"), w.norm(name + "_norm2")
        self.wide, self.narrow = w.dense(name + "_wide"), w.dense(name + "_narrow")

    def forward(self, x):
        x = self.norm1(x + self.seen(x))
        return self.norm2(x + self.narrow(torch.relu(self.wide(x))))


class MeanOfSteps(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Bottleneck(nn.Module):
    def __init__(self, w, name, stride, widens):
        super().__init__()
        self.body = nn.Sequential(
            w.conv_bn(name + "_1", stride), nn.ReLU(inplace=True),
            w.conv_bn(name + "_2"), nn.ReLU(inplace=True), w.conv_bn(name + "_3"))
        self.skip = w.conv_bn(name + "_skip", stride) if widens else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


class WideDeep(nn.Module):
    """Takes the rows that were looked up: of the deep table and of the wide one."""

    def __init__(self, w):
        super().__init__()
        self.a, self.b = w.dense("dense_a"), w.dense("dense_b")

    def forward(self, deep, wide, numbers):
        x = torch.cat([deep.flatten(1), numbers], 1)
        x = torch.relu(self.b(torch.relu(self.a(x))))
        return torch.cat([x, wide.flatten(1)], 1)


def resnet50(w, task):
    layers = [w.conv_bn("stem", 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for stage in range(4):
        for block in range(task.count(f"s{stage}b")):
            layers.append(Bottleneck(w, f"s{stage}b{block}", 2 if stage > 0 and block == 0 else 1,
                                     block == 0))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def body_and_head(task):
    """All layers but the last, and the last, which is float32 whatever the others are."""
    w = Weights(task.weights)
    if task.model == "mlp":
        return nn.Sequential(w.dense("dense_a"), nn.ReLU(), w.dense("dense_b"),
                             nn.ReLU()), w.dense("dense_c")
    if task.model == "cnn":
        body = nn.Sequential(w.conv_bn("a"), nn.ReLU(), nn.MaxPool2d(2), w.conv_bn("b"), nn.ReLU(),
                             nn.MaxPool2d(2), ChannelsLast())
    elif task.model == "resnet50":
        body = resnet50(w, task)
    elif task.model == "transformer":
        body = nn.Sequential(*[Block(w, f"b{i}") for i in range(task.count("b"))], MeanOfSteps())
    else:
        body = WideDeep(w)
    return body, w.dense("dense")


class Net(nn.Module):
    def __init__(self, task):
        super().__init__()
        self.body, self.head = body_and_head(task)
        self.mixed = task.precision == "bf16"

    def forward(self, *inputs):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=self.mixed):
            x = self.body(*inputs)
        return self.head(x.float())


class TorchPeer(gpu_task.Subject):
    def init(self, task):
        self.drop()
        self.task, self.graph = task, None
        tf32 = task.precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        self.batches = [self.on_device(x, y) for x, y in task.all_batches()]
        net = Net(task)
        if task.images:
            net = net.to(memory_format=torch.channels_last)
        self.net = net.to(DEVICE)
        self.tables = []
        if task.model == "wide_deep":
            w = Weights(task.weights)
            self.tables = [w.embedding(name).to(DEVICE) for name in ("deep", "wide")]
        self.first = [p.detach().clone() for p in self.weights()]
        self.make_optimizers()
        self.forward = self.loss_of
        if KIND in ("compiled", "reduce_overhead"):
            mode = "reduce-overhead" if KIND == "reduce_overhead" else "default"
            self.forward = torch.compile(self.loss_of, dynamic=False, mode=mode)
            self.reset()
            for _ in range(WARM_STEPS):
                self.step()
        self.wait()

    def on_device(self, x, y):
        x = [torch.from_numpy(part.copy()).to(DEVICE) for part in x]
        if self.task.images:
            x = [part.permute(0, 3, 1, 2) for part in x]  # in memory, channels are last
        x = [part if part.is_floating_point() else part.long() for part in x]
        return x, torch.from_numpy(y.copy()).to(DEVICE).long()

    def weights(self):
        return list(self.net.parameters()) + [table.weight for table in self.tables]

    def make_optimizers(self):
        task, weights = self.task, list(self.net.parameters())
        if task.optimizer == "adam":
            captured = {"capturable": True} if KIND == "graph" and ON_GPU else {}
            dense = torch.optim.Adam(weights, task.learning_rate, eps=1e-12, fused=True, **captured)
        else:
            dense = torch.optim.SGD(weights, task.learning_rate, task.momentum, fused=True)
        self.optimizers = [dense]
        if self.tables and KIND == "eager":
            for table in self.tables:
                table.sparse = True
            self.optimizers.append(
                torch.optim.SGD([table.weight for table in self.tables], task.learning_rate))

    def loss_of(self, inputs, y):
        return F.cross_entropy(self.net(*inputs), y)

    def step_on(self, inputs, y):
        if self.tables:
            return self.step_on_rows(*inputs, y)
        loss = self.forward(inputs, y)
        loss.backward()
        self.update()
        return loss.detach()

    def step_on_rows(self, ids, numbers, y):
        """By sparse gradients; or, where these cannot be captured, rows added by hand."""
        if KIND == "eager":
            rows = [table(ids) for table in self.tables]
        else:
            rows = [F.embedding(ids, table.weight.detach()).requires_grad_()
                    for table in self.tables]
        loss = self.forward((*rows, numbers), y)
        loss.backward()
        if KIND != "eager":
            with torch.no_grad():
                for table, row in zip(self.tables, rows):
                    table.weight.index_add_(0, ids.flatten(), row.grad.flatten(0, 1),
                                            alpha=-self.task.learning_rate)
        self.update()
        return loss.detach()

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def reset(self):
        """In place: graphs know where weights and moments are."""
        with torch.no_grad():
            for parameter, value in zip(self.weights(), self.first):
                parameter.copy_(value)
            for optimizer in self.optimizers:
                for state in optimizer.state.values():
                    for value in state.values():
                        if torch.is_tensor(value):
                            value.zero_()
        self.index = 0

    def curve(self, steps):
        if KIND == "graph" and ON_GPU and self.graph is None:
            self.capture()
        return super().curve(steps)

    def capture(self):
        self.reset()
        inputs, y = self.batches[0]
        self.inputs, self.labels = [part.clone() for part in inputs], y.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_STEPS):
                self.step_on(self.inputs, self.labels)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self.step_on(self.inputs, self.labels)
        self.graph = graph

    def step(self):
        inputs, y = self.batches[self.index % len(self.batches)]
        self.index += 1
        if self.graph is None:
            return self.step_on(inputs, y)
        for mine, given in zip(self.inputs, inputs):
            mine.copy_(given)
        self.labels.copy_(y)
        self.graph.replay()
        return self.loss

    def wait(self):
        if ON_GPU:
            torch.cuda.synchronize()

    def kernels(self, steps):
        kind = torch.profiler.ProfilerActivity
        with torch.profiler.profile(activities=[kind.CUDA if ON_GPU else kind.CPU]) as profile:
            self.run(steps)
        events = profile.key_averages()
        if not ON_GPU:
            return sum(event.self_cpu_time_total for event in events) / steps
        on_device = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
        return sum(event.self_device_time_total for event in on_device) / steps

    def drop(self):
        for name in ("graph", "loss", "inputs", "labels", "batches", "net", "tables", "first",
                     "optimizers", "forward"):
            self.__dict__.pop(name, None)
        if ON_GPU:
            torch.cuda.empty_cache()


where = f" on {torch.cuda.get_device_name()}" if ON_GPU else ""
gpu_task.serve(TorchPeer(), f"torch {torch.__version__}{where}")
