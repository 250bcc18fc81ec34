#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs keras_interop.py with a Python that has Keras, and onnx_interop.py with one that has onnxruntime.

    run.py --setup
    run.py PROGRAM PREDICT_PROGRAM

These are COHORT_KERAS_PYTHON and COHORT_ONNX_PYTHON, else the environments "keras" and "onnx" of
benchmarks/peers/setup, which --setup makes where they are missing (some 250 MB). Where that cannot be, the
test is skipped with the reason (status 77); on CI (CI=true) it fails.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SETUP = HERE.parent.parent / "benchmarks" / "peers" / "setup"
SKIPPED = 77
KINDS = {"keras": "keras and jax", "onnx": "onnx and onnxruntime"}


def cache():
    return os.environ.get("COHORT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cohort")


def variable(kind):
    return f"COHORT_{kind.upper()}_PYTHON"


def prepare(*options):
    """What is missing, as a reason; nothing: all is there."""
    missing = [kind for kind in KINDS if not os.environ.get(variable(kind))]
    made = subprocess.run([SETUP, *options, *missing], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) if missing else None
    if made is None or made.returncode == 0:
        return ""
    print(made.stdout, end="")
    wanted = "; ".join(f"{variable(kind)} to a Python that has {KINDS[kind]}" for kind in missing)
    return f"real Keras or onnxruntime could not be set up (see above): without a network, set {wanted}"


def python_of(kind):
    return os.environ.get(variable(kind)) or os.path.join(cache(), "peers", kind, "bin", "python")


def main():
    only_sets_up = sys.argv[1:] == ["--setup"]
    reason = prepare() if only_sets_up else prepare("--check")
    if reason and os.environ.get("CI") == "true":
        sys.exit(f"interop: failed: {reason}")
    if reason:
        print(f"interop: skipped: {reason}")
        sys.exit(SKIPPED)
    if only_sets_up:
        return
    with tempfile.TemporaryDirectory(prefix="cohort_interop_") as folder:
        with_keras = subprocess.run([python_of("keras"), HERE / "keras_interop.py", *sys.argv[1:], folder])
        with_onnx = subprocess.run([python_of("onnx"), HERE / "onnx_interop.py", folder])
        sys.exit(with_keras.returncode or with_onnx.returncode)


if __name__ == "__main__":
    main()
