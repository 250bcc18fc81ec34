#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks what the layers' libraries call: nothing that runs code which came over the wire or in a file.

    tools/check_symbols.py LIBRARY.a [LIBRARY.a ...]

No TorchScript, no pickle, no program that a shell starts. dlopen loads the device backend that is
installed beside Cohort (runtime/device_library.cc), and posix_spawnp starts Graphviz for plot_model.
"""
import re
import subprocess
import sys
from pathlib import Path

FORBIDDEN = re.compile(
    r"^(dlopen|dlmopen|dlsym|system|popen|execve|execvp|execv|execl|execlp|posix_spawnp?)(@.*)?$"
    r"|torch::jit::|[Uu]npickle|pickle_load|torch::load")
ALLOWED = {"cohort_runtime": {"dlopen", "dlsym"}, "cohort_keras": {"posix_spawnp"}}


def complaints(library, symbols):
    """Of those that `library` calls, by their demangled names."""
    allowed = ALLOWED.get(library, set())
    return [f"{library} calls {each}" for each in sorted(set(symbols))
            if FORBIDDEN.search(each) and each.split("@")[0] not in allowed]


def calls_of(path):
    out = subprocess.run(["nm", "-uC", path], capture_output=True, text=True, check=True).stdout
    return [line.split(None, 1)[1].strip() for line in out.splitlines()
            if line.lstrip().startswith("U ")]


def main(paths):
    found = []
    for path in paths:
        calls = calls_of(path)
        if not calls:
            found.append(f"{path} calls nothing: is it a library?")
        found += complaints(Path(path).stem.removeprefix("lib"), calls)
    for each in found:
        print(each)
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
