# SPDX-License-Identifier: Apache-2.0
"""What the Python peers of gpu_bench share: a task's folder, and the lines of the pipe:

    init <folder>     -> ok                        build the model, and compile it
    curve <steps>     -> ok <loss> <loss> ...      of each step, from the first weights on
    run <steps>       -> ok <nanoseconds> <host>   go on training; until the device has done it, and
                                                   until the host had started it
    kernels <steps>   -> ok <microseconds>         a step's kernels, added up by a profiler
    drop              -> ok                        give the memory back
"""

import pathlib
import time

import keras_task
import peer


class Task(keras_task.Task):
    """A folder that gpu_tasks.h wrote."""

    def __init__(self, folder):
        super().__init__(folder)
        text = (pathlib.Path(folder) / "case.txt").read_text()
        fields = dict(line.split(" ", 1) for line in text.splitlines())
        self.precision = fields["precision"]
        self.optimizer = fields["optimizer"]
        self.learning_rate = float(fields["learning_rate"])
        self.momentum = float(fields["momentum"])
        self.images = self.model in ("cnn", "resnet50")

    def all_batches(self):
        """Tuples of inputs, and labels, of each batch."""
        for i in range(self.batches):
            x, y = self.batch_at(i)
            yield (x if isinstance(x, tuple) else (x,)), y

    def count(self, prefix):
        """How many of prefix0, prefix1, ... there are before what their names go on with."""
        names = {name.partition("_")[0] for name in self.weights if name.startswith(prefix)}
        return sum(name[len(prefix):].isdigit() for name in names)


class Subject:
    """What a peer defines: init(task), reset(), step() -> a loss that is not waited for, wait()."""

    def curve(self, steps):
        self.reset()
        return [float(self.step()) for _ in range(steps)]

    def run(self, steps):
        self.wait()
        start = time.perf_counter_ns()
        for _ in range(steps):
            self.step()
        host = time.perf_counter_ns() - start
        self.wait()
        return time.perf_counter_ns() - start, host

    def kernels(self, steps):
        raise NotImplementedError("no profiler")


def answer(subject, words):
    command, argument = words[0], words[1] if len(words) > 1 else ""
    if command == "init":
        subject.init(Task(argument))
        return ""
    if command == "drop":
        subject.drop()
        return ""
    if command == "curve":
        return "".join(f" {loss!r}" for loss in subject.curve(int(argument)))
    if command == "run":
        nanoseconds, host = subject.run(int(argument))
        return f" {nanoseconds} {host}"
    if command == "kernels":
        return f" {subject.kernels(int(argument))!r}"
    raise ValueError(f"unknown command {command}")


def serve(subject, versions):
    peer.serve(subject, versions, answer)
