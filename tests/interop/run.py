#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs keras_interop.py with a Python that has Keras.

    run.py PROGRAM PREDICT_PROGRAM

That is COHORT_KERAS_PYTHON, else the environment "keras" of benchmarks/peers/setup, which is made where
it is missing (some 150 MB). Where it cannot be made, the test is skipped with the reason (status 77); on
CI (CI=true) it fails.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SETUP = HERE.parent.parent / "benchmarks" / "peers" / "setup"
SKIPPED = 77


def cache():
    return os.environ.get("COHORT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cohort")


def python_with_keras():
    """(its path, nothing), or (nothing, why there is none)."""
    given = os.environ.get("COHORT_KERAS_PYTHON")
    if given:
        return given, ""
    made = subprocess.run([SETUP, "keras"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(made.stdout, end="")
    if made.returncode == 0:
        return os.path.join(cache(), "peers", "keras", "bin", "python"), ""
    return None, ("real Keras could not be set up (see above): without a network, or without "
                  "python3-venv, set COHORT_KERAS_PYTHON to a Python that has keras and jax")


def main():
    python, reason = python_with_keras()
    if python is None and os.environ.get("CI") == "true":
        sys.exit(f"interop: failed: {reason}")
    if python is None:
        print(f"interop: skipped: {reason}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="cohort_interop_") as folder:
        script = HERE / "keras_interop.py"
        sys.exit(subprocess.run([python, script, *sys.argv[1:], folder]).returncode)


if __name__ == "__main__":
    main()
