# SPDX-License-Identifier: Apache-2.0
"""What the Python peers of keras_bench share: a task's folder, and the lines of the pipe:

    init <folder>     -> ok                        build or open the model
    curve <steps>     -> ok <loss> <loss> ...      of each step, from the first weights on
    run <steps>       -> ok <nanoseconds>          go on training; the time of the steps alone
    predict <times>   -> ok <nanoseconds> <sum>    60,000 rows, so many times; the outputs' sum
"""

import pathlib

import numpy as np

import peer

PREDICTED_ROWS = 60000


class Task:
    """A folder that keras_tasks.h wrote."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        fields = dict(line.split(" ", 1) for line in (folder / "case.txt").read_text().splitlines())
        self.model = fields["model"]
        self.batch = int(fields["batch"])
        self.replicas = int(fields["replicas"])
        self.batches = int(fields["batches"])
        self.global_batch = self.batch * self.replicas
        self.model_file = str(folder / "model.keras")
        self.inputs = [np.load(folder / f"x{i}.npy") for i in range(int(fields["inputs"]))]
        self.labels = np.load(folder / "y.npy")
        self.weights = {path.stem: np.load(path) for path in (folder / "weights").iterdir()}

    def batch_at(self, i):
        """Inputs (a list if there are several) and labels of a step."""
        rows = slice(i % self.batches * self.global_batch, (i % self.batches + 1) * self.global_batch)
        x = [part[rows] for part in self.inputs]
        return (x[0] if len(x) == 1 else tuple(x)), self.labels[rows]

    def many_rows(self):
        """The first input's rows, again and again."""
        x = self.inputs[0]
        return np.concatenate([x] * (PREDICTED_ROWS // len(x) + 1))[:PREDICTED_ROWS]


def answer(subject, words):
    command, argument = words
    if command == "init":
        subject.init(Task(argument))
        return ""
    count = int(argument)
    if command == "curve":
        return "".join(f" {loss!r}" for loss in subject.curve(count))
    if command == "run":
        return f" {subject.run(count)}"
    if command == "predict":
        nanoseconds, total = peer.timed(lambda: [subject.predict() for _ in range(count)][-1])
        return f" {nanoseconds} {total!r}"
    raise ValueError(f"unknown command {command}")


def serve(subject, versions):
    peer.serve(subject, versions, answer)
