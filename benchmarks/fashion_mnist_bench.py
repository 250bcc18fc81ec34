#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's program as it stands, beside the same program in Keras.

fashion_mnist_bench.py --program build/release/examples/fashion_mnist [--seeds 5] [--epochs 5]

Runs both in turns, a fresh process per seed, and compares test accuracy, seconds of training and
seconds of the whole program. Without Keras's environment (peers/setup) it measures Cohort alone.
The last line is for scripts.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def keras_python():
    """The interpreter of Keras's environment, or None."""
    cache = os.environ.get("COHORT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cohort")
    python = pathlib.Path(cache) / "peers" / "xla" / "bin" / "python"
    return python if python.exists() else None


def run(command):
    """Accuracy, training seconds and program seconds of one run."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    total = time.perf_counter() - start
    accuracy = re.search(r"test accuracy ([0-9.]+)", done.stdout)
    seconds = re.search(r"epochs in ([0-9.]+) s", done.stdout)
    if done.returncode != 0 or not accuracy or not seconds:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return float(accuracy[1]), float(seconds[1]), total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        contenders = {"cohort": [options.program, "--weights", f"{folder}/weights.safetensors"]}
        if python := keras_python():
            contenders["keras"] = [str(python), str(HERE / "peers" / "keras_fashion_mnist.py")]
        results = {name: [] for name in contenders}
        for seed in range(1, options.seeds + 1):
            for name, command in contenders.items():
                results[name].append(
                    run(command + ["--epochs", str(options.epochs), "--seed", str(seed)]))
                accuracy, train, total = results[name][-1]
                print(f"seed {seed}  {name:7} accuracy {accuracy:.4f}  training {train:6.2f} s  "
                      f"program {total:6.2f} s", flush=True)

    fields = [f"seeds={options.seeds}", f"epochs={options.epochs}"]
    for name, runs in results.items():
        fields.append(f"{name}_accuracy={statistics.mean(r[0] for r in runs):.4f}")
        fields.append(f"{name}_train_s={statistics.median(r[1] for r in runs):.2f}")
        fields.append(f"{name}_program_s={statistics.median(r[2] for r in runs):.2f}")
    if "keras" in results:
        difference = (statistics.mean(r[0] for r in results["cohort"]) -
                      statistics.mean(r[0] for r in results["keras"]))
        fields.append(f"difference={difference:+.4f}")
        ratio = statistics.median(k[2] / c[2] for c, k in zip(results["cohort"], results["keras"]))
        fields.append(f"vs_keras={ratio:.2f}")
    else:
        fields.append("keras=missing")
    print("fashion_mnist_bench: " + " ".join(fields))


if __name__ == "__main__":
    main()
