# SPDX-License-Identifier: Apache-2.0
"""Layers of torch.nn with the weights that Cohort wrote."""

import numpy as np
import torch
from torch import nn


class Weights:
    """Layers of torch.nn with weights by Keras's names and in its layouts."""

    def __init__(self, by_name):
        self.by_name = by_name

    def __call__(self, name):
        """By layer and weight; between them may stand the name of a cell."""
        layer, _, weight = name.partition(".")
        full = [n for n in self.by_name if n == name or
                n.startswith(layer + ".") and n.endswith("." + weight)]
        if len(full) != 1:
            raise KeyError(f"{name}: {full or sorted(self.by_name)}")
        return torch.from_numpy(np.array(self.by_name[full[0]]))

    def fill(self, pairs):
        with torch.no_grad():
            for parameter, value in pairs:
                parameter.copy_(value.reshape(parameter.shape))

    def dense(self, name):
        kernel = self(name + ".kernel")
        layer = nn.Linear(*kernel.shape)
        self.fill([(layer.weight, kernel.T), (layer.bias, self(name + ".bias"))])
        return layer

    def conv_bn(self, name, stride=1, padding=None):
        """Padded as told, else as TensorFlow's "same" is: an odd rest behind the image."""
        kernel = self(name + "_conv.kernel").permute(3, 2, 0, 1)
        outputs, inputs, size, _ = kernel.shape
        before, after = ((size - 1) // 2, size // 2) if stride == 1 else (0, max(size - stride, 0))
        if padding is not None:
            before = after = padding
        padding = before if before == after else 0
        conv = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
        norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
        self.fill([(conv.weight, kernel), (norm.weight, self(name + "_bn.gamma")),
                   (norm.bias, self(name + "_bn.beta"))])
        pad = [] if padding == before == after else [nn.ZeroPad2d((before, after, before, after))]
        return nn.Sequential(*pad, conv, norm)

    def embedding(self, name):
        table = self(name + ".embeddings")
        layer = nn.Embedding(*table.shape)
        self.fill([(layer.weight, table)])
        return layer

    def norm(self, name):
        gamma = self(name + ".gamma")
        layer = nn.LayerNorm(gamma.shape, eps=1e-3)
        self.fill([(layer.weight, gamma), (layer.bias, self(name + ".beta"))])
        return layer

    def lstm(self, name):
        kernel = self(name + ".kernel")
        layer = nn.LSTM(kernel.shape[0], kernel.shape[1] // 4, batch_first=True)
        self.fill([(layer.weight_ih_l0, kernel.T), (layer.bias_ih_l0, self(name + ".bias")),
                   (layer.weight_hh_l0, self(name + ".recurrent_kernel").T),
                   (layer.bias_hh_l0, torch.zeros_like(layer.bias_hh_l0))])
        layer.bias_hh_l0.requires_grad_(False)  # Keras has one bias
        return layer

    def attention(self, name):
        width, heads, _ = self(f"{name}.query.kernel").shape
        layer = nn.MultiheadAttention(width, heads, batch_first=True)
        kernels = [self(f"{name}.{part}.kernel").reshape(width, width).T
                   for part in ("query", "key", "value")]
        biases = [self(f"{name}.{part}.bias").flatten() for part in ("query", "key", "value")]
        out = f"{name}.attention_output"
        self.fill([(layer.in_proj_weight, torch.cat(kernels)), (layer.in_proj_bias, torch.cat(biases)),
                   (layer.out_proj.weight, self(out + ".kernel").reshape(width, width).T),
                   (layer.out_proj.bias, self(out + ".bias"))])
        return layer


class Block(nn.Module):
    def __init__(self, w, name):
        super().__init__()
        self.seen = w.attention(name + "_seen")
        self.norm1, self.norm2 = w.norm(name + "_norm1"), w.norm(name + "_norm2")
        self.wide, self.narrow = w.dense(name + "_wide"), w.dense(name + "_narrow")

    def forward(self, x):
        x = self.norm1(x + self.seen(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.narrow(torch.relu(self.wide(x))))


class ChannelsLast(nn.Module):
    """Behind a Flatten that takes rows, columns, channels, as Keras's does."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)
